//! Placeholders of other frameworks in a template, and arguments named without braces.
//!
//! They are plain text here. A template without any other placeholder would lock the same key for all arguments, so
//! each of them is a mistake: `order:#orderId`, `order:%s`, `order:order_id`.

use crate::suggest;

/// Text in a template that another framework would fill in.
#[derive(Debug, PartialEq)]
pub(crate) struct ForeignPlaceholder {
    /// The text that the user wrote.
    pub(crate) written: String,
    /// The placeholder to write instead, without its braces.
    pub(crate) meant: String,
}

/// Finds the mistakes in the text of a template without placeholders.
///
/// `arguments` are the names that the function binds. A method without arguments has at least `self`;
/// a function without either can only lock a constant key.
pub(crate) fn find(text: &str, arguments: &[String], has_self: bool) -> Vec<ForeignPlaceholder> {
    if arguments.is_empty() && !has_self {
        return Vec::new();
    }
    let mut found: Vec<ForeignPlaceholder> = Vec::new();
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let is_inside = before.is_some_and(is_word);
        let (length, mistake) = match token(rest, before).filter(|_| !is_inside) {
            Some(token) => (token.length, Some(token.describe(rest, arguments))),
            None if is_word(first) && !is_inside => word(rest, before, arguments),
            None => (first.len_utf8(), None),
        };
        if let Some(mistake) = mistake
            && !found.contains(&mistake)
        {
            found.push(mistake);
        }
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    found
}

/// Finds arguments written like another framework's placeholders beside placeholders of ours.
///
/// Here only an argument's own name counts: the rest of the template already tells keys apart, so a
/// `#` or an `@` in it may well be meant.
pub(crate) fn find_beside_placeholders(
    text: &str,
    arguments: &[String],
) -> Vec<ForeignPlaceholder> {
    let mut found = find(text, arguments, false);
    found.retain(|foreign| {
        foreign.written.starts_with(['#', '$', '<', '@'])
            && argument(name_in(&foreign.written), arguments).is_some()
    });
    found
}

/// A placeholder of another framework at the beginning of a text.
struct ForeignToken<'a> {
    /// The length in bytes.
    length: usize,
    name: PlaceholderName<'a>,
}

enum PlaceholderName<'a> {
    /// `#order.id`: a name, and the text after it.
    Name(&'a str),
    /// `#p0`, `$1`: the index of an argument, counted from 0.
    Number(usize),
    /// `%s`: the next argument.
    Next,
}

impl ForeignToken<'_> {
    fn describe(&self, text: &str, arguments: &[String]) -> ForeignPlaceholder {
        let meant = match self.name {
            PlaceholderName::Name(name) => path(name, arguments),
            PlaceholderName::Number(number) => arguments.get(number).cloned(),
            PlaceholderName::Next => None,
        };
        let any = || arguments.first().cloned().unwrap_or_else(|| "self.id".to_owned());
        ForeignPlaceholder {
            written: text[..self.length].to_owned(),
            meant: meant.unwrap_or_else(any),
        }
    }
}

/// Parses a placeholder of another framework at the beginning of a text. `before` is the character before it.
fn token(text: &str, before: Option<char>) -> Option<ForeignToken<'_>> {
    let sign = text.chars().next()?;
    let after = &text[sign.len_utf8()..];
    match sign {
        '#' | '$' | '@' => {
            if let Some(inside) = after.strip_prefix('{').and_then(|inside| inside.split_once('}'))
            {
                let name = inside.0.trim_matches(|c: char| !is_word(c));
                return Some(ForeignToken {
                    length: inside.0.len() + 3,
                    name: PlaceholderName::Name(name),
                });
            }
            if sign == '$'
                && let number @ 1.. = digits(after)
            {
                let name = PlaceholderName::Number(number_of(&after[..number])?.saturating_sub(1));
                return Some(ForeignToken { length: 1 + number, name });
            }
            let length = expression(after)?;
            let name = &after[..length];
            Some(ForeignToken {
                length: 1 + length,
                name: numbered(name).map_or(PlaceholderName::Name(name), PlaceholderName::Number),
            })
        }
        '<' => {
            let (inside, _) = after.split_once('>')?;
            // Flask writes `<int:id>`.
            let name = inside.rsplit(':').next()?.trim();
            let is_name = !name.is_empty() && expression(name) == Some(name.len());
            is_name.then(|| ForeignToken {
                length: inside.len() + 2,
                name: PlaceholderName::Name(name),
            })
        }
        // Only a route has a placeholder here: in `nightly:report` the `:` separates words.
        ':' if matches!(before, None | Some('/')) => {
            let length = expression(after)?;
            Some(ForeignToken { length: 1 + length, name: PlaceholderName::Name(&after[..length]) })
        }
        '%' => printf(after),
        '?' => {
            let number = digits(after);
            let ends = !after[number..].starts_with(is_word);
            let name = number_of(&after[..number]).map_or(PlaceholderName::Next, |number| {
                PlaceholderName::Number(number.saturating_sub(1))
            });
            ends.then_some(ForeignToken { length: 1 + number, name })
        }
        _ => None,
    }
}

/// Parses the text after the `%` of `%s`, `%05d`, `%1$s` and `%(id)s`.
fn printf(after: &str) -> Option<ForeignToken<'_>> {
    let (name, rest) = match after.strip_prefix('(').and_then(|inside| inside.split_once(')')) {
        Some((name, rest)) => (PlaceholderName::Name(name), rest),
        None => match after.split_once('$') {
            Some((number, rest)) if digits(number) == number.len() && !number.is_empty() => {
                (PlaceholderName::Number(number_of(number)?.saturating_sub(1)), rest)
            }
            _ => (PlaceholderName::Next, after),
        },
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+#.*".contains(c));
    let rest = rest.trim_start_matches(['l', 'h', 'z']);
    let kind = rest.chars().next().filter(|kind| "sdiuvxXcqfgropbT@".contains(*kind))?;
    let rest = &rest[kind.len_utf8()..];
    let length = 1 + after.len() - rest.len();
    (!rest.starts_with(is_word)).then_some(ForeignToken { length, name })
}

/// Parses the index in Spring's `p0`, `a0`, `args[0]` and `root.args[0]`.
fn numbered(name: &str) -> Option<usize> {
    let name = name.strip_prefix("root.").unwrap_or(name);
    let inside = name.strip_prefix("args[").and_then(|inside| inside.strip_suffix(']'));
    number_of(inside.or(name.strip_prefix(['p', 'a']))?)
}

fn number_of(text: &str) -> Option<usize> {
    text.parse().ok()
}

fn digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len()
}

/// Returns the length of `order.id`, `args[0]` or `order.getId()` at the beginning of a text.
fn expression(text: &str) -> Option<usize> {
    let word = |text: &str| text.len() - text.trim_start_matches(is_word).len();
    let mut length = word(text);
    if length == 0 || text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    loop {
        let rest = &text[length..];
        length += if let Some(field) = rest.strip_prefix('.').filter(|rest| word(rest) > 0) {
            1 + word(field)
        } else if let Some((index, _)) =
            rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            index.len() + 2
        } else if rest.starts_with("()") {
            2
        } else {
            return Some(length);
        };
    }
}

/// Converts `order.getId()` to `order.id`, if `order` is an argument or is spelled like one.
fn path(name: &str, arguments: &[String]) -> Option<String> {
    let mut parts = name.split('.');
    let first = parts.next()?;
    let mut path = argument(first, arguments)
        .or_else(|| suggest::nearest(first, arguments.iter().map(String::as_str)))?
        .to_owned();
    for part in parts.filter(|part| part.chars().all(is_word) || part.ends_with("()")) {
        let field = part.trim_end_matches("()");
        let field = field.strip_prefix("get").filter(|field| !field.is_empty()).unwrap_or(field);
        path.push('.');
        path.push_str(snake_case(field).trim_start_matches('_'));
    }
    Some(path)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Returns the length of the word at the beginning of a text, and the argument that it names.
fn word(
    text: &str,
    before: Option<char>,
    arguments: &[String],
) -> (usize, Option<ForeignPlaceholder>) {
    let until = |end: fn(char) -> bool| text.find(end).unwrap_or(text.len());
    let short = until(|c| !is_word(c));
    // `order-id` may be one name or two words.
    let long =
        text[..until(|c| !is_word(c) && !matches!(c, '-' | '.'))].trim_end_matches(['-', '.']);
    for written in [long, &text[..short]] {
        if let Some(argument) = argument(written, arguments) {
            let is_braced = before == Some('{') && text[written.len()..].starts_with('}');
            let meant = argument.to_owned();
            let shown = if is_braced { format!("{{{{{written}}}}}") } else { written.to_owned() };
            return (written.len(), Some(ForeignPlaceholder { written: shown, meant }));
        }
    }
    (short, None)
}

/// Returns the argument with this name, ignoring case and `_`.
fn argument<'a>(name: &str, arguments: &'a [String]) -> Option<&'a str> {
    let name = plain(name);
    arguments.iter().map(String::as_str).find(|argument| plain(argument) == name)
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn name_in(written: &str) -> &str {
    let name = written.trim_start_matches(|c: char| !is_word(c));
    name.split(|c: char| !is_word(c)).next().unwrap_or_default()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, arguments: &[&str]) -> Vec<(String, String)> {
        let arguments: Vec<_> = arguments.iter().map(|&name| name.to_owned()).collect();
        let found = find(text, &arguments, false);
        found.into_iter().map(|foreign| (foreign.written, foreign.meant)).collect()
    }

    const SPELLINGS: [&str; 16] = [
        // Separated by ` ; `.
        // Spring's expressions, and Redisson's and ShedLock's users.
        "order:#orderId ; 'order:' + #orderId ; #orderId ; order:#order_id",
        "order:#ORDER_ID ; order:#p0 ; order:#a0 ; order:#args[0] ; order:#root.args[0]",
        "order:#root.method ; order:#{orderId} ; order:#{#orderId}",
        "T(java.lang.String).valueOf(#orderId)",
        // Shells, Scala, Kotlin, JavaScript, Java's properties.
        "order:$orderId ; order:$order_id ; order:${orderId} ; order:${order_id}",
        "order:$1",
        // Format strings.
        "order:%s ; order:%d ; order:%05d ; order:%1$s ; order:%ld ; order:%(order_id)s",
        "%s ; order:%v ; order:%r ; order:%o ; order:%p ; order:%b ; order:%*d",
        // Routes and statements.
        "order::order_id ; order/:order_id ; order:<order_id> ; order:<int:order_id>",
        "order:@order_id ; order:@orderId ; order:? ; order:?1 ; /orders/:orderId/pay",
        "/orders/:number ; :number",
        // Handlebars, Jinja.
        "order:{order_id} ; order:{ order_id } ; order:{orderId}",
        // A name and nothing else.
        "order_id ; order:order_id ; order:orderId ; order:OrderId ; order:ORDER_ID",
        "orderid ; order:order-id ; order-ID ; order[order_id] ; (order_id)",
        r"order:%order_id% ; order.id ; order:\(order_id) ; order:~order_id",
        "'order:' + order_id ; order:*order_id",
    ];

    /// Fault: FW2.
    #[test]
    fn every_spelling_of_another_framework_is_found() {
        for text in SPELLINGS.iter().flat_map(|texts| texts.split(" ; ")) {
            let found = found(text, &["order_id"]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].1, "order_id", "{text}");
        }
    }

    /// Fault: FW2.
    #[test]
    fn constant_keys_are_left_alone() {
        for text in [
            "nightly",
            "nightly:report",
            "video",
            "order",
            "orders",
            "id",
            "order:identity",
            "order_id2",
            "my_order_id",
            "a:#1",
            "a#b",
            "c#",
            "admin@example.org",
            "100%",
            "50%discount",
            "job:$",
            "a<b",
            "a<1>b",
            "<>",
            "why?",
            "{cart}:all",
            "{}",
            "x:{0}",
            "ünïcödé:#",
            "#",
            "%",
            "order: id",
        ] {
            assert_eq!(found(text, &["order_id"]), [], "{text}");
        }
        for text in ["order:#id", "%s", "id"] {
            assert_eq!(found(text, &[]), [], "{text}: there is nothing to write instead");
        }
    }

    #[test]
    fn the_argument_that_was_meant_is_named() {
        let meant = |text: &str, arguments: &[&str]| {
            found(text, arguments).into_iter().map(|(_, meant)| meant).collect::<Vec<_>>()
        };
        assert_eq!(
            meant("'t:' + #fromId + ':' + #toId", &["from_id", "to_id"]),
            ["from_id", "to_id"]
        );
        assert_eq!(meant("t:#p1:#p0", &["from", "to"]), ["to", "from"]);
        assert_eq!(meant("t:$2:%1$s", &["from", "to"]), ["to", "from"]);
        assert_eq!(meant("#order.id", &["db", "order"]), ["order.id"]);
        assert_eq!(meant("#order.getCustomerId()", &["order"]), ["order.customer_id"]);
        assert_eq!(meant("order.id", &["order"]), ["order"]);
        assert_eq!(meant("#ordrId", &["db", "order_id"]), ["order_id"]);
        assert_eq!(meant("#nothingLikeIt", &["id", "db"]), ["id"]);
        assert_eq!(meant("type:#type", &["type"]), ["type", "type"]);
        assert_eq!(find("order:#id", &[], true)[0].meant, "self.id");
    }

    #[test]
    fn it_is_shown_as_it_was_written() {
        let written = |text: &str| found(text, &["id"]).remove(0).0;
        for (text, shown) in [
            ("a:#id:b", "#id"),
            ("a:${id}:b", "${id}"),
            ("a:{id}:b", "{{id}}"),
            ("a:<int:id>/b", "<int:id>"),
            ("a:%(id)s", "%(id)s"),
            ("#root.args[0]-", "#root.args[0]"),
            ("a:ID", "ID"),
        ] {
            assert_eq!(written(text), shown);
        }
    }

    #[test]
    fn beside_a_placeholder_only_an_argument_counts() {
        let found =
            |text| find_beside_placeholders(text, &["tenant".to_owned(), "id".to_owned()]).len();
        for text in [":#id", ":$id", ":<id>", "@id"] {
            assert_eq!(found(text), 1, "{text}");
        }
        for text in [":#7", ":id:", "{id}", "%", "@home", ":#all", "tenant:"] {
            assert_eq!(found(text), 0, "{text}");
        }
    }
}
