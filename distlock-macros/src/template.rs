//! The text of a template → pieces of text and placeholders.

use syn::{Expr, Ident};

#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    /// Text between placeholders, `{{` and `}}` already turned into braces.
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    /// The first name, without `r#`; in `key("…", …)` possibly a value's number.
    pub(crate) base: String,
    /// What follows it after dots: `tenant`, `0`.
    pub(crate) fields: Vec<String>,
    /// What follows the colon, colon included; or nothing.
    pub(crate) spec: String,
    /// Names in the spec that are a width or a precision: `width$`.
    pub(crate) counts: Vec<String>,
}

impl Placeholder {
    /// It stands for a value by its place, as in `{}` and `{0}`.
    pub(crate) fn number(&self) -> Option<usize> {
        self.base.parse().ok()
    }

    pub(crate) fn path(&self) -> String {
        let mut path = self.base.clone();
        for field in &self.fields {
            path.push('.');
            path.push_str(field);
        }
        path
    }
}

/// Or what is wrong, and how to write it.
type Scan<T> = Result<T, String>;

/// Whether placeholders may be without a name, and which value the next `{}` is.
pub(crate) enum Numbers {
    None,
    Next(usize),
}

/// The pieces of a template, in order.
pub(crate) fn scan(text: &str, numbers: &mut Numbers) -> Scan<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push(c);
            rest = &rest[2..];
        } else if c == '}' {
            return Err("a `}` without its `{`: write `}}` for a literal brace".to_owned());
        } else if c == '{' {
            let Some((inside, after)) = rest[1..].split_once('}') else {
                return Err("a `{` without its `}`: write `{{` for a literal brace".to_owned());
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Placeholder(placeholder(inside, numbers)?));
            rest = after;
        } else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    if pieces.is_empty() {
        return Err("the key is empty: say what to lock, for example `order:{order_id}`".to_owned());
    }
    separated(&pieces)?;
    Ok(pieces)
}

fn separated(pieces: &[Piece]) -> Scan<()> {
    for pair in pieces.windows(2) {
        if let [Piece::Placeholder(a), Piece::Placeholder(b)] = pair {
            let (a, b) = (a.path(), b.path());
            return Err(format!(
                "nothing separates `{{{a}}}` from `{{{b}}}`, so different values could make the same \
                 key: write `{{{a}}}:{{{b}}}`"
            ));
        }
    }
    Ok(())
}

fn placeholder(inside: &str, numbers: &mut Numbers) -> Scan<Placeholder> {
    let (name, spec) = match inside.split_once(':') {
        Some((name, spec)) => (name, format!(":{}", spec.trim_end())),
        None => (inside.trim_end(), String::new()),
    };
    if inside.contains("::") && syn::parse_str::<syn::Path>(inside).is_ok() {
        return Err(not_a_name(inside, inside));
    }
    let counts = counts(inside, &spec)?;
    let is_number = name.bytes().all(|b| b.is_ascii_digit()) && name.parse::<usize>().is_ok();
    let (base, fields) = match numbers {
        Numbers::Next(next) if name.is_empty() => {
            *next += 1;
            ((*next - 1).to_string(), Vec::new())
        }
        Numbers::Next(_) if is_number => (name.to_owned(), Vec::new()),
        _ => path(inside, name)?,
    };
    Ok(Placeholder { base, fields, spec, counts })
}

fn path(inside: &str, name: &str) -> Scan<(String, Vec<String>)> {
    if name.is_empty() {
        return Err(format!(
            "`{{{inside}}}` names nothing: write the argument's name, for example `{{order_id}}`"
        ));
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{{{inside}}}`: arguments are not numbered here: write the argument's name"
        ));
    }
    let mut parts = name.split('.');
    let base = parts.next().unwrap_or_default();
    let fields: Vec<String> = parts.map(unraw).collect();
    if fields.is_empty() && base.starts_with("r#") {
        return Err(format!("`{{{inside}}}`: write `{{{}}}` without the `r#`", unraw(base)));
    }
    let base = unraw(base);
    let is_index =
        |field: &str| field.bytes().all(|b| b.is_ascii_digit()) && field.parse::<u32>().is_ok();
    let is_field = |field: &String| field != "self" && is_name(field) || is_index(field);
    if !is_name(&base) || !fields.iter().all(is_field) {
        return Err(not_a_name(inside, name));
    }
    Ok((base, fields))
}

fn not_a_name(inside: &str, name: &str) -> String {
    let plain = name.trim_matches(|c: char| "#$%@&".contains(c) || c.is_whitespace());
    let mend = if is_name(plain) {
        format!("write `{{{plain}}}`")
    } else if syn::parse_str::<Expr>(name).is_ok() {
        format!("write `key(\"…{{}}…\", {name})`, or give the value a name")
    } else {
        "write `{order}`, `{order.id}` or `{pair.0}` (and `{{` for a literal brace)".to_owned()
    };
    format!("`{{{inside}}}` is not a name or a field: {mend}")
}

fn is_name(name: &str) -> bool {
    // Compared as text because the lexer would skip spaces and comments; with `r#` because a
    // template names `r#type` as `type`.
    let is = |text: &str| syn::parse_str::<Ident>(text).is_ok_and(|ident| ident == text);
    name == "self" || is(name) || is(&format!("r#{name}"))
}

fn unraw(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_owned()
}

/// The `width$` and `.precision$` names of a spec, after a look at its type.
fn counts(inside: &str, spec: &str) -> Scan<Vec<String>> {
    let Some(spec) = spec.strip_prefix(':') else {
        return Ok(Vec::new());
    };
    // A fill may be any character, `?` and `$` included.
    let mut chars = spec.char_indices();
    let fill = match (chars.next(), chars.next()) {
        (Some(_), Some((at, '<' | '^' | '>'))) => at + 1,
        (Some((_, '<' | '^' | '>')), _) => 1,
        _ => 0,
    };
    let spec = &spec[fill..];
    if spec.ends_with('?') {
        return Err(format!(
            "`{{{inside}}}`: `?` prints for people and may change between versions; a key needs a \
             stable text: use `Display`, without the `?`"
        ));
    }
    // In `{ptr:width$}` and `{ptr:0p$}` the letter belongs to a name.
    let kind = spec.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    if kind.trim_start_matches(|c: char| c.is_ascii_digit()) == "p" {
        return Err(format!(
            "`{{{inside}}}`: `p` prints an address, which is different in every process; use a value"
        ));
    }
    if matches!(kind, "u64" | "i64" | "uuid" | "str") {
        return Err(format!(
            "`{{{inside}}}`: the argument has its type, and only templates of layers say one: write \
             `{{{name}}}`",
            name = inside.split(':').next().unwrap_or_default(),
        ));
    }
    if spec.contains(".*") {
        return Err(format!(
            "`{{{inside}}}`: arguments are not numbered here: write the precision's name, as in \
             `{{{inside_name}:.digits$}}`",
            inside_name = inside.split(':').next().unwrap_or_default(),
        ));
    }
    let mut names: Vec<String> = spec.split('$').map(last_name).collect();
    names.pop(); // what follows the last `$` is the type
    if names.iter().any(String::is_empty) {
        return Err(format!("`{{{inside}}}`: give the width or precision a name, as in `width$`"));
    }
    Ok(names)
}

/// The name that ends `text`: in `0width` it is `width`.
fn last_name(text: &str) -> String {
    let start = text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    text[start..].trim_start_matches(|c: char| c.is_ascii_digit()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholders(text: &str) -> Vec<Placeholder> {
        let pieces = scan(text, &mut Numbers::None).expect(text).into_iter();
        let placeholders = pieces.filter_map(|piece| match piece {
            Piece::Placeholder(placeholder) => Some(placeholder),
            Piece::Text(_) => None,
        });
        placeholders.collect()
    }

    fn paths(text: &str) -> Vec<String> {
        placeholders(text).iter().map(Placeholder::path).collect()
    }

    #[test]
    fn finds_names_fields_and_indices() {
        assert_eq!(paths("order:{order_id}"), ["order_id"]);
        assert_eq!(
            paths("{a}:{b.c.0}-{self.tenant}/{self}"),
            ["a", "b.c.0", "self.tenant", "self"]
        );
        assert_eq!(
            paths("{type}:{order.type}:{größe}:{_x}"),
            ["type", "order.type", "größe", "_x"]
        );
        assert_eq!(paths("no placeholders"), [""; 0]);
    }

    #[test]
    fn braces_are_doubled() {
        let pieces = scan("{{tag}}:{id}:{{}}", &mut Numbers::None).expect("braces that are text");
        assert_eq!(pieces[0], Piece::Text("{tag}:".to_owned()));
        assert_eq!(pieces[2], Piece::Text(":{}".to_owned()));
    }

    #[test]
    fn specs_keep_their_count_names() {
        let counts = |text| placeholders(text).into_iter().flat_map(|one| one.counts);
        let counts = |text| counts(text).collect::<Vec<_>>();
        assert_eq!(counts("{id:05}"), [""; 0]);
        assert_eq!(counts("{id:0width$}"), ["width"]);
        assert_eq!(counts("{x:>w$.digits$}"), ["w", "digits"]);
        assert_eq!(counts("{x:$^8}:{y:?<8}:{z:#x}"), [""; 0]);
        assert_eq!(counts("{x:p$}"), ["p"]);
    }

    #[test]
    fn mistakes_name_the_mend() {
        for (text, words) in [
            ("", "say what to lock"),
            ("order:{}", "write the argument's name"),
            ("order:{0}", "not numbered"),
            ("order:{:05}", "write the argument's name"),
            ("order:{id", "write `{{` for a literal brace"),
            ("order:id}", "write `}}` for a literal brace"),
            ("{Self::ID}", "write `key(\"…{}…\", Self::ID)`"),
            ("{id.len()}", "write `key(\"…{}…\", id.len())`"),
            ("{a.99999999999}", "not a name or a field"),
            ("{a.self}", "not a name or a field"),
            ("{a}{b}", "write `{a}:{b}`"),
            ("{a.x}{b}", "nothing separates `{a.x}` from `{b}`"),
            ("{id:?}", "without the `?`"),
            ("{id:#?}", "without the `?`"),
            ("{id:x?}", "without the `?`"),
            ("{id:p}", "an address"),
            ("{id:#p}", "an address"),
            ("{id:016p}", "an address"),
            ("{id:.*}", "precision's name"),
            ("{order.id()}", "is not a name or a field"),
            ("{ids[0]}", "is not a name or a field"),
            ("{a + b}", "is not a name or a field"),
            ("{order.}", "is not a name or a field"),
            ("{_}", "is not a name or a field"),
            ("{ id }", "write `{id}`"),
            ("{#id}", "write `{id}`"),
            ("{r#type}", "write `{type}`"),
        ] {
            let message = scan(text, &mut Numbers::None).expect_err(text);
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
