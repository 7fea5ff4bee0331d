//! The template of a key: its text is parsed into pieces of text and placeholders.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::{Error, Expr, Ident, LitStr};

/// A parsed template, for example `"order:{order_id}"`.
pub(crate) struct KeyTemplate {
    /// The literal that the user wrote. `format_args!` gets this token where possible, so that rustc's carets point
    /// into the text.
    pub(crate) literal: LitStr,
    pub(crate) pieces: Vec<TemplatePiece>,
}

/// The values in `key("…", …)`.
#[derive(Default)]
pub(crate) struct TemplateValues {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Ident, Expr)>,
}

impl TemplateValues {
    /// Returns the value that a placeholder's base names.
    pub(crate) fn get(&self, base: &str) -> Option<&Expr> {
        match base.parse::<usize>() {
            Ok(number) => self.positional.get(number),
            Err(_) => {
                self.named.iter().find(|(name, _)| name.unraw() == base).map(|(_, value)| value)
            }
        }
    }
}

impl KeyTemplate {
    pub(crate) fn parse(literal: LitStr) -> syn::Result<Self> {
        match parse_pieces(&literal.value(), &mut Numbering::None) {
            Ok(pieces) => Ok(Self { literal, pieces }),
            Err(message) => Err(Error::new(literal.span(), message)),
        }
    }

    /// Parses the text in `key("…", …)`, where placeholders may be values without a name.
    pub(crate) fn parse_call(literal: LitStr, values: &TemplateValues) -> syn::Result<Self> {
        let wrong = |message: String| Error::new(literal.span(), message);
        let pieces = parse_pieces(&literal.value(), &mut Numbering::Next(0)).map_err(wrong)?;
        let template = Self { literal: literal.clone(), pieces };
        let given = values.positional.len();
        if let Some(number) =
            template.placeholders().filter_map(Placeholder::number).find(|number| *number >= given)
        {
            let values = if given == 1 { "value follows" } else { "values follow" };
            return Err(wrong(format!(
                "there is no value number {}: only {given} {values} the text",
                number + 1
            )));
        }
        let is_used = |base: &str| {
            template.placeholders().any(|placeholder| {
                placeholder.base == base || placeholder.counts.iter().any(|count| count == base)
            })
        };
        let named = values.named.iter().map(|(name, value)| (name.unraw().to_string(), value));
        let numbered =
            values.positional.iter().enumerate().map(|(number, value)| (number.to_string(), value));
        for (base, value) in numbered.chain(named) {
            if !is_used(&base) {
                return Err(Error::new_spanned(
                    value,
                    "this value has no place in the text: write a `{}` for it",
                ));
            }
        }
        Ok(template)
    }

    /// Whether the text has a placeholder for a value of this name, or for a value without a name.
    pub(crate) fn takes_value(literal: &LitStr, name: Option<&str>) -> bool {
        let pieces = parse_pieces(&literal.value(), &mut Numbering::Next(0)).unwrap_or_default();
        pieces.iter().any(|piece| match (piece, name) {
            (TemplatePiece::Text(_), _) => false,
            (TemplatePiece::Placeholder(placeholder), Some(name)) => {
                placeholder.base == name || placeholder.counts.iter().any(|count| count == name)
            }
            (TemplatePiece::Placeholder(placeholder), None) => placeholder.number().is_some(),
        })
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Placeholder(placeholder) => Some(placeholder),
            TemplatePiece::Text(_) => None,
        })
    }

    /// Returns the first names of all placeholders, each once.
    pub(crate) fn bases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.placeholders().map(|one| one.base.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether all placeholders are plain names, so that `format_args!` can read the text as the user wrote it.
    pub(crate) fn is_plain(&self) -> bool {
        self.placeholders()
            .all(|one| one.fields.is_empty() && one.base != "self" && one.counts.is_empty())
    }

    /// Whether a placeholder prints this name itself, and not a field of it.
    pub(crate) fn prints(&self, name: &str) -> bool {
        self.placeholders()
            .any(|placeholder| placeholder.base == name && placeholder.fields.is_empty())
    }

    /// Returns for every placeholder the first character of the text between it and the next one. If a value contained
    /// that character, two argument lists could make the same key.
    pub(crate) fn separators(&self) -> Vec<Option<char>> {
        let is_placeholder =
            |piece: Option<&TemplatePiece>| matches!(piece, Some(TemplatePiece::Placeholder(_)));
        (0..self.pieces.len())
            .filter(|i| is_placeholder(self.pieces.get(*i)))
            .map(|i| match self.pieces.get(i + 1) {
                Some(TemplatePiece::Text(text)) if is_placeholder(self.pieces.get(i + 2)) => {
                    text.chars().next()
                }
                _ => None,
            })
            .collect()
    }

    /// Returns a span on the literal that does not count as the user's code. Otherwise rustc would offer to replace
    /// the whole text by a similar name.
    pub(crate) fn generated_span(&self) -> Span {
        Span::call_site().located_at(self.literal.span())
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum TemplatePiece {
    /// Text between placeholders, in which `{{` and `}}` are already single braces.
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    /// The first name, without `r#`. In `key("…", …)` it may be the number of a value.
    pub(crate) base: String,
    /// The fields after dots: `tenant`, `0`.
    pub(crate) fields: Vec<String>,
    /// The format spec with its colon, or nothing.
    pub(crate) spec: String,
    /// The names of width and precision in the spec: `width$`.
    pub(crate) counts: Vec<String>,
}

impl Placeholder {
    /// Returns the position of the value for `{}` and `{0}`.
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

/// The error says what is wrong and how to write it.
type TemplateResult<T> = Result<T, String>;

/// Whether placeholders may have numbers instead of names.
pub(crate) enum Numbering {
    None,
    /// The number of the next `{}`.
    Next(usize),
}

/// Splits a template into its pieces, in order.
fn parse_pieces(text: &str, numbers: &mut Numbering) -> TemplateResult<Vec<TemplatePiece>> {
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
                pieces.push(TemplatePiece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(TemplatePiece::Placeholder(placeholder(inside, numbers)?));
            rest = after;
        } else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    if !literal.is_empty() {
        pieces.push(TemplatePiece::Text(literal));
    }
    if pieces.is_empty() {
        return Err("the key is empty: say what to lock, for example `order:{order_id}`".to_owned());
    }
    separated(&pieces)?;
    Ok(pieces)
}

fn separated(pieces: &[TemplatePiece]) -> TemplateResult<()> {
    for pair in pieces.windows(2) {
        if let [TemplatePiece::Placeholder(a), TemplatePiece::Placeholder(b)] = pair {
            let (a, b) = (a.path(), b.path());
            return Err(format!(
                "nothing separates `{{{a}}}` from `{{{b}}}`, so different values could make the same \
                 key: write `{{{a}}}:{{{b}}}`"
            ));
        }
    }
    Ok(())
}

fn placeholder(inside: &str, numbers: &mut Numbering) -> TemplateResult<Placeholder> {
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
        Numbering::Next(next) if name.is_empty() => {
            *next += 1;
            ((*next - 1).to_string(), Vec::new())
        }
        Numbering::Next(_) if is_number => (name.to_owned(), Vec::new()),
        _ => path(inside, name)?,
    };
    Ok(Placeholder { base, fields, spec, counts })
}

fn path(inside: &str, name: &str) -> TemplateResult<(String, Vec<String>)> {
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
    let hint = if is_name(plain) {
        format!("write `{{{plain}}}`")
    } else if syn::parse_str::<Expr>(name).is_ok() {
        format!("write `key(\"…{{}}…\", {name})`, or give the value a name")
    } else {
        "write `{order}`, `{order.id}` or `{pair.0}` (and `{{` for a literal brace)".to_owned()
    };
    format!("`{{{inside}}}` is not a name or a field: {hint}")
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

/// Returns the names of `width$` and `.precision$` in a spec, and checks the spec.
fn counts(inside: &str, spec: &str) -> TemplateResult<Vec<String>> {
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
    // The text after the last `$` is the type.
    names.pop();
    if names.iter().any(String::is_empty) {
        return Err(format!("`{{{inside}}}`: give the width or precision a name, as in `width$`"));
    }
    Ok(names)
}

/// Returns the name at the end of a text: `width` in `0width`.
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
        let pieces = parse_pieces(text, &mut Numbering::None).expect(text).into_iter();
        let placeholders = pieces.filter_map(|piece| match piece {
            TemplatePiece::Placeholder(placeholder) => Some(placeholder),
            TemplatePiece::Text(_) => None,
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
        let pieces =
            parse_pieces("{{tag}}:{id}:{{}}", &mut Numbering::None).expect("braces that are text");
        assert_eq!(pieces[0], TemplatePiece::Text("{tag}:".to_owned()));
        assert_eq!(pieces[2], TemplatePiece::Text(":{}".to_owned()));
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
    fn mistakes_name_the_fix() {
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
            let message = parse_pieces(text, &mut Numbering::None).expect_err(text);
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn separators_are_the_first_character_before_the_next_placeholder() {
        let parse = |text| KeyTemplate::parse(LitStr::new(text, Span::call_site()));
        let separators = |text| parse(text).expect("a template").separators();
        assert_eq!(separators("{a}-{b}"), [Some('-'), None]);
        assert_eq!(separators("{a}::{b}/x"), [Some(':'), None]);
        assert_eq!(separators("x{a}{{{b}→{c}"), [Some('{'), Some('→'), None]);
    }
}
