//! Templates whose placeholders are path parameters. They are parsed when the program starts, and filled in for every
//! request.
//!
//! A path is text, and a handler reads numbers from it: `7`, `07` and `+7` are the same order. So each placeholder has
//! a type. The parameter is parsed as this type and printed again, so that all spellings make the same key.
//! `route_key!` in `distlock-macros` has the same rules.

use std::panic::Location;

use distlock_core::key::{Flaw, LockKey};
use uuid::Uuid;

use crate::error::LockError;
use crate::key_encoding::{KeyText, Part};

/// A parsed template, such as `order:{order_id:u64}`.
#[derive(Debug)]
pub(crate) struct PathTemplate {
    source: &'static str,
    pieces: Vec<PathPiece>,
    /// For each parameter, the character that ends its value.
    separators: Vec<Option<char>>,
}

#[derive(Debug, PartialEq)]
enum PathPiece {
    Text(String),
    Parameter(String, ParameterType),
}

/// The type of a path parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ParameterType {
    U64,
    I64,
    Uuid,
    Str,
}

impl ParameterType {
    /// Returns a value in its canonical spelling, or `None` if it is not of this type.
    fn canonical(self, text: &str) -> Option<String> {
        Some(match self {
            Self::U64 => text.parse::<u64>().ok()?.to_string(),
            Self::I64 => text.parse::<i64>().ok()?.to_string(),
            Self::Uuid => Uuid::parse_str(text).ok()?.to_string(),
            Self::Str => text.to_owned(),
        })
    }
}

impl PathTemplate {
    /// Parses the template of a key, while the program starts.
    ///
    /// # Panics
    ///
    /// If it is malformed, with the mistake, its fix, and the place of the caller. Routers do the same with a
    /// malformed path.
    pub(crate) fn new(source: &'static str, caller: &'static Location<'static>) -> Self {
        match Self::parse(source) {
            Ok(template) => template,
            Err(mistake) => {
                panic!("the key \"{}\" at {caller} cannot be used: {mistake}", source)
            }
        }
    }

    /// Parses a template. An error names the mistake and its fix.
    fn parse(source: &'static str) -> Result<Self, String> {
        let pieces = scan(source)?;
        if let [PathPiece::Text(text)] = &pieces[..] {
            foreign_placeholder(text)?;
        }
        let separators = separators(&pieces)?;
        Ok(Self { source, pieces, separators })
    }

    /// Returns whether the template has placeholders.
    pub(crate) fn has_parameters(&self) -> bool {
        !self.separators.is_empty()
    }

    /// Returns whether every placeholder has its parameter.
    pub(crate) fn finds(&self, is_there: impl Fn(&str) -> bool) -> bool {
        self.pieces.iter().all(|piece| match piece {
            PathPiece::Parameter(name, _) => is_there(name),
            PathPiece::Text(_) => true,
        })
    }

    /// Makes the key from the names and values of the path's parameters. A value that is not of its type makes a key
    /// that cannot be stored.
    pub(crate) fn fill(&self, parameters: &[(&str, &str)]) -> Result<LockKey, LockError> {
        let mut values = Vec::with_capacity(self.separators.len());
        for piece in &self.pieces {
            let PathPiece::Parameter(name, of) = piece else { continue };
            let mut values_of_name = parameters.iter().filter(|(has, _)| has == name);
            let Some((_, value)) = values_of_name.next() else {
                return Err(self.no_parameter(name, parameters));
            };
            if values_of_name.next().is_some() {
                return Err(self.two_parameters(name));
            }
            match of.canonical(value) {
                Some(value) => values.push(value),
                None => return Ok(LockKey::flawed(self.source, Flaw::Parameter)),
            }
        }
        let text = KeyText::new(&self.separators);
        let mut values = values.iter();
        let parts = self.pieces.iter().filter_map(|piece| match piece {
            PathPiece::Text(literal) => Some(FilledPiece::Text(literal)),
            PathPiece::Parameter(..) => {
                values.next().map(|value| FilledPiece::Value(text.value(value.as_str(), 0)))
            }
        });
        let parts: Vec<_> = parts.collect();
        Ok(text.key(self.source, format_args!("{}", FilledPieces(&parts))))
    }

    /// A scope and a route inside it may both have a parameter of this name, and only one of them would be locked.
    fn two_parameters(&self, name: &str) -> LockError {
        LockError::invalid_option(format!(
            "key: the route has two path parameters `{name}`, and \"{}\" does not say which; give one \
             another name, or make the key with `key_fn`",
            self.source
        ))
    }

    fn no_parameter(&self, name: &str, parameters: &[(&str, &str)]) -> LockError {
        let has: Vec<String> = parameters.iter().map(|(name, _)| format!("`{name}`")).collect();
        let has = match &has[..] {
            [] => "it has none".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        LockError::invalid_option(format!(
            "key: the route has no path parameter `{name}` for \"{}\" ({has}); name one that every \
             route under this lock has, or make the key with `key_fn`",
            self.source
        ))
    }
}

/// A piece of a template for one request.
enum FilledPiece<'a> {
    Text(&'a str),
    Value(Part<'a, str>),
}

/// Prints the pieces one after the other.
struct FilledPieces<'a>(&'a [FilledPiece<'a>]);

impl std::fmt::Display for FilledPieces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            FilledPiece::Text(text) => f.write_str(text),
            FilledPiece::Value(value) => value.fmt(f),
        })
    }
}

/// Splits a template into its pieces.
fn scan(source: &str) -> Result<Vec<PathPiece>, String> {
    if source.is_empty() {
        return Err(
            "it is empty; say what to lock, for example \"order:{order_id:u64}\"".to_owned()
        );
    }
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = source;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
        if let Some(after) = after.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err("a `}` stands alone; write `}}` for a literal brace".to_owned());
        }
        let Some((inside, after)) = after.split_once('}') else {
            return Err("a `{` is never closed; write `{{` for a literal brace".to_owned());
        };
        let (name, of) = parameter(inside)?;
        if !text.is_empty() {
            pieces.push(PathPiece::Text(std::mem::take(&mut text)));
        }
        pieces.push(PathPiece::Parameter(name.to_owned(), of));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(PathPiece::Text(text));
    }
    Ok(pieces)
}

/// Parses the inside of a placeholder, such as `order_id:u64`.
fn parameter(inside: &str) -> Result<(&str, ParameterType), String> {
    let (name, of) = match inside.split_once(':') {
        Some((name, of)) => (name, Some(of)),
        None => (inside, None),
    };
    let bare = name.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    if bare.is_empty() {
        return Err(format!(
            "`{{{inside}}}` names nothing; write the path parameter's name and type, for example \
             `{{order_id:u64}}`"
        ));
    }
    if name.contains('.') {
        return Err(format!(
            "`{{{inside}}}`: a path parameter has no fields; write its name, or make the key with `key_fn`"
        ));
    }
    let Some(of) = of else {
        return Err(format!(
            "`{{{inside}}}` has no type, and `7` and `07` would be two locks; write `{{{bare}:u64}}` \
             (or `i64`, `uuid`), `{{{bare}:str}}` to take the text as it is, or make the key with \
             `key_fn`"
        ));
    };
    if bare.len() < name.len() {
        return Err(format!("`{{{inside}}}` is not a name; write `{{{bare}:{of}}}`"));
    }
    let of = match of {
        "u64" => ParameterType::U64,
        "i64" => ParameterType::I64,
        "uuid" => ParameterType::Uuid,
        "str" => ParameterType::Str,
        other => {
            let meant = match other.trim_matches(|c: char| c == '&' || c.is_whitespace()) {
                "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "i64",
                "Uuid" | "UUID" | "uuid" => "uuid",
                "String" | "str" | "string" => "str",
                _ => "u64",
            };
            return Err(format!(
                "`{{{inside}}}`: a path parameter is of type `u64`, `i64`, `uuid` or `str`, and takes \
                 no format; write `{{{bare}:{meant}}}`"
            ));
        }
    };
    Ok((name, of))
}

/// Refuses `order:#id`, `order:${id}`, `/orders/:id`, `order:<id>`, `order:@id` and `order:%s`, because other
/// frameworks would fill these in. Here they are plain text, and the key would be the same for every request.
fn foreign_placeholder(text: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, sign) in text.char_indices() {
        let (before, after) = (&text[..at], &text[at + sign.len_utf8()..]);
        let (open, close) = match sign {
            '#' | '$' if after.starts_with('{') => ("{", "}"),
            '<' => ("", ">"),
            '#' | '$' | '@' | ':' | '%' => ("", ""),
            _ => continue,
        };
        let inside = after.strip_prefix(open).unwrap_or(after);
        let name = &inside[..inside.find(|c| !is_word(c)).unwrap_or(inside.len())];
        let begins_a_name = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        let is_alone = match sign {
            ':' => before.ends_with('/'),
            '%' => matches!(name, "s" | "d"),
            _ => !before.ends_with(is_word),
        };
        if begins_a_name && is_alone && inside[name.len()..].starts_with(close) {
            let name = if sign == '%' { "order_id" } else { name };
            return Err(format!(
                "`{sign}{}` is plain text here, and the key would be the same for every request; write \
                 `{{{name}:u64}}` (or `i64`, `uuid`, `str`) for a path parameter, or make the key with \
                 `key_fn`",
                &after[..open.len()
                    + inside.find(|c| !is_word(c)).unwrap_or(inside.len())
                    + close.len()],
            ));
        }
    }
    Ok(())
}

/// Returns for each placeholder the character that ends its value, as in the attribute: the first character of the
/// text between this value and the next one.
fn separators(pieces: &[PathPiece]) -> Result<Vec<Option<char>>, String> {
    let mut separators = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let PathPiece::Parameter(name, _) = piece else { continue };
        separators.push(match (pieces.get(at + 1), pieces.get(at + 2)) {
            (Some(PathPiece::Text(text)), Some(PathPiece::Parameter(..))) => text.chars().next(),
            (Some(PathPiece::Parameter(next, _)), _) => {
                return Err(format!(
                    "nothing separates `{{{name}}}` from `{{{next}}}`, so different values could make \
                     the same key; write a `:` between them"
                ));
            }
            _ => None,
        });
    }
    Ok(separators)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(source: &'static str, parameters: &[(&str, &str)]) -> Result<String, String> {
        let template = PathTemplate::parse(source)?;
        let key = template.fill(parameters).map_err(|error| error.to_string())?;
        assert_eq!(key.template(), Some(source));
        key.check().map_err(str::to_owned)?;
        Ok(key.as_str().to_owned())
    }

    #[test]
    fn values_are_encoded_as_in_every_template() {
        let filled = |source, a, b| fill(source, &[("a", a), ("b", b)]);
        assert_eq!(filled("{a:str}-{b:str}", "x-y", "z").as_deref(), Ok("x%2Dy-z"));
        assert_eq!(filled("{a:str}-{b:str}", "x", "y-z").as_deref(), Ok("x-y-z"));
        assert_eq!(filled("{a:i64}-{b:i64}", "-1", "-2").as_deref(), Ok("%2D1--2"));
        let thrice = filled("{b:str}:{a:str}:{b:str}", "1:2", "é%");
        assert_eq!(thrice.as_deref(), Ok("é%25:1%3A2:é%25"));
        assert_eq!(filled("{{{a:str}}}:x", "7", "").as_deref(), Ok("{7}:x"));
        assert_eq!(filled("everything", "7", "").as_deref(), Ok("everything"));
    }

    /// Fault: FC6.
    #[test]
    fn a_percent_sign_between_values_ends_the_first() {
        let texts = ["", "%", "2", "25", "5", "%2", "%25", "%%", "5%", "%25%"];
        for source in
            ["{a:str}%{b:str}", "{a:str}%2{b:str}", "{a:str}%25{b:str}", "%{a:str}%%{b:str}%"]
        {
            let mut seen = std::collections::HashMap::new();
            for a in texts {
                for b in texts {
                    let key = fill(source, &[("a", a), ("b", b)]).expect(source);
                    let other = seen.insert(key.clone(), (a, b));
                    assert_eq!(other, None, "{:?} makes {key} of {source}, too", (a, b));
                }
            }
        }
    }

    /// Fault: F9.
    #[test]
    fn a_value_has_one_spelling() {
        const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for (source, spellings, key) in [
            ("{x:u64}", &["7", "07", "+7", "0000000007"][..], "7"),
            ("{x:i64}", &["-7", "-07", "-0000000007"], "-7"),
            ("{x:i64}", &["0", "-0", "+0", "00"], "0"),
            (
                "{x:uuid}",
                &[
                    ID,
                    "67E55044-10B1-426F-9247-BB680E5FE0C8",
                    "67e5504410b1426f9247bb680e5fe0c8",
                    "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
                    "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
                ],
                ID,
            ),
        ] {
            for spelling in spellings {
                assert_eq!(fill(source, &[("x", spelling)]).as_deref(), Ok(key), "{spelling}");
            }
        }
        assert_eq!(fill("{x:str}", &[("x", "07")]).as_deref(), Ok("07"));
        for (source, value) in [
            ("{x:u64}", "seven"),
            ("{x:u64}", ""),
            ("{x:u64}", " 7"),
            ("{x:u64}", "-7"),
            ("{x:u64}", "18446744073709551616"),
            ("{x:i64}", "7.0"),
            ("{x:uuid}", "67e55044"),
        ] {
            let refused = fill(source, &[("x", value)]);
            assert!(refused.is_err_and(|reason| reason.contains("a number or a UUID")), "{value}");
        }
    }

    /// A route in a scope may have a name twice, and each handler reads the one it likes.
    #[test]
    fn wh2_a_parameter_of_a_name_that_is_there_twice_is_refused() {
        let path = [("id", "1"), ("shop", "7"), ("id", "secret")];
        let error = fill("order:{id:u64}", &path).expect_err("which one is meant?");
        assert!(error.contains("two path parameters `id`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert_eq!(fill("order:{shop:u64}", &path).as_deref(), Ok("order:7"));
    }

    #[test]
    fn a_missing_parameter_is_named_with_what_there_is() {
        let error = fill("order:{order_id:u64}", &[("id", "secret"), ("shop", "x")]);
        let error = error.expect_err("a parameter is missing");
        assert!(error.contains("no path parameter `order_id`"), "{error}");
        assert!(error.contains("it has `id`, `shop`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert!(fill("{a:u64}", &[]).is_err_and(|error| error.contains("it has none")));
    }

    /// Fault: FW2.
    #[test]
    fn constant_keys_are_left_alone() {
        for source in [
            "nightly:report",
            "shop::orders",
            "ticket #7",
            "a#b",
            "100%",
            "50%discount",
            "admin@example.org",
            "a<b",
            "{{cart}}:all",
            "{id:u64}#main",
            "http://host",
        ] {
            assert!(PathTemplate::parse(source).is_ok(), "{source}");
        }
    }

    /// `distlock-macros` has the same table for `route_key!`.
    /// Fault: FW2.
    #[test]
    fn mistakes_name_the_mend() {
        for (source, words) in [
            ("", "say what to lock"),
            ("order:{}", "`{order_id:u64}`"),
            ("order:{:05}", "`{order_id:u64}`"),
            ("order:{id}", "`{id:u64}`"),
            ("order:{id}", "`{id:str}`"),
            ("order:{id}", "`key_fn`"),
            ("order:{id:05}", "write `{id:u64}`"),
            ("order:{id:i32}", "write `{id:i64}`"),
            ("order:{id:Uuid}", "write `{id:uuid}`"),
            ("order:{id:&str}", "write `{id:str}`"),
            ("order:{order.id:u64}", "`key_fn`"),
            ("order:{id", "write `{{`"),
            ("order:id}", "write `}}`"),
            ("{a:u64}{b:u64}", "a `:` between"),
            ("{*rest:str}", "write `{rest:str}`"),
            ("{ id:u64}", "write `{id:u64}`"),
            ("order:#id", "`#id` is plain text here"),
            ("order:#{{id}}", "`#{id}` is plain text here"),
            ("order:$id", "write `{id:u64}`"),
            ("order:${{id}}", "`${id}` is plain text here"),
            ("/orders/:id/pay", "`:id` is plain text here"),
            ("order:<id>", "`<id>` is plain text here"),
            ("order:@id", "`key_fn`"),
            ("order:%s", "write `{order_id:u64}`"),
        ] {
            let message = PathTemplate::parse(source).expect_err(source);
            assert!(message.contains(words), "{source}: {message}");
        }
    }
}
