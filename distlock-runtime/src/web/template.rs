//! Templates whose placeholders are path parameters: read when the program starts, filled in for
//! every request.

use crate::error::LockError;
use crate::key::{KeyText, LockKey};

/// `order:{order_id}`.
#[derive(Debug)]
pub(super) struct Template {
    source: &'static str,
    pieces: Vec<Piece>,
    /// For each parameter, the character that ends its value.
    separators: Vec<Option<char>>,
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Parameter(String),
}

impl Template {
    /// The template, or what is wrong with it and how to mend it.
    pub(super) fn parse(source: &'static str) -> Result<Self, String> {
        let pieces = scan(source)?;
        let separators = separators(&pieces)?;
        Ok(Self { source, pieces, separators })
    }

    /// Whether there is anything to fill in.
    pub(super) fn has_parameters(&self) -> bool {
        !self.separators.is_empty()
    }

    /// The name of a parameter that is not among these.
    #[cfg(feature = "actix")]
    pub(super) fn missing(&self, is_there: impl Fn(&str) -> bool) -> Option<&str> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Parameter(name) if !is_there(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The key, from the names and values of the path's parameters.
    pub(super) fn fill(&self, parameters: &[(&str, &str)]) -> Result<LockKey, LockError> {
        let text = KeyText::new(&self.separators);
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            parts.push(match piece {
                Piece::Text(literal) => Filled::Text(literal),
                Piece::Parameter(name) => match parameters.iter().find(|(has, _)| has == name) {
                    Some((_, value)) => Filled::Value(text.part(*value)),
                    None => return Err(self.no_parameter(name, parameters)),
                },
            });
        }
        Ok(text.key(self.source, format_args!("{}", Parts(&parts))))
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

enum Filled<'a> {
    Text(&'a str),
    Value(crate::key::Part<'a, str>),
}

struct Parts<'a>(&'a [Filled<'a>]);

impl std::fmt::Display for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Filled::Text(text) => f.write_str(text),
            Filled::Value(value) => value.fmt(f),
        })
    }
}

fn scan(source: &str) -> Result<Vec<Piece>, String> {
    if source.is_empty() {
        return Err("it is empty; say what to lock, for example \"order:{order_id}\"".to_owned());
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
        let Some((name, after)) = after.split_once('}') else {
            return Err("a `{` is never closed; write `{{` for a literal brace".to_owned());
        };
        check_name(name)?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Parameter(name.to_owned()));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn check_name(name: &str) -> Result<(), String> {
    let before = name.split_once(':').map_or(name, |(before, _)| before);
    let bare = before.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    if bare.is_empty() {
        return Err(format!(
            "`{{{name}}}` names nothing; write the path parameter's name, for example `{{order_id}}`"
        ));
    }
    if before.len() < name.len() {
        return Err(format!(
            "`{{{name}}}`: a path parameter is a text and takes no format; write `{{{bare}}}`"
        ));
    }
    if name.contains('.') {
        return Err(format!(
            "`{{{name}}}`: a path parameter has no fields; write its name, or make the key with `key_fn`"
        ));
    }
    if bare.len() < name.len() {
        return Err(format!("`{{{name}}}` is not a name; write `{{{bare}}}`"));
    }
    Ok(())
}

/// As in the attribute: the first character of the text between a value and the next one.
fn separators(pieces: &[Piece]) -> Result<Vec<Option<char>>, String> {
    let mut separators = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let Piece::Parameter(name) = piece else { continue };
        separators.push(match (pieces.get(at + 1), pieces.get(at + 2)) {
            (Some(Piece::Text(text)), Some(Piece::Parameter(_))) => text.chars().next(),
            (Some(Piece::Parameter(next)), _) => {
                return Err(format!(
                    "nothing separates `{{{name}}}` from `{{{next}}}`, so different values could make \
                     the same key; write `{{{name}}}:{{{next}}}`"
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
        let template = Template::parse(source)?;
        let key = template.fill(parameters).map_err(|error| error.to_string())?;
        assert_eq!(key.template(), Some(source));
        Ok(key.as_str().to_owned())
    }

    #[test]
    fn values_are_encoded_as_in_every_template() {
        let filled = |source, a, b| fill(source, &[("a", a), ("b", b)]);
        assert_eq!(filled("{a}-{b}", "x-y", "z").as_deref(), Ok("x%2Dy-z"));
        assert_eq!(filled("{a}-{b}", "x", "y-z").as_deref(), Ok("x-y-z"));
        assert_eq!(filled("{b}:{a}:{b}", "1:2", "é%").as_deref(), Ok("é%25:1%3A2:é%25"));
        assert_eq!(filled("{{{a}}}:x", "7", "").as_deref(), Ok("{7}:x"));
        assert_eq!(filled("everything", "7", "").as_deref(), Ok("everything"));
    }

    #[test]
    fn a_missing_parameter_is_named_with_what_there_is() {
        let error = fill("order:{order_id}", &[("id", "secret"), ("shop", "x")]);
        let error = error.expect_err("a parameter is missing");
        assert!(error.contains("no path parameter `order_id`"), "{error}");
        assert!(error.contains("it has `id`, `shop`"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert!(fill("{a}", &[]).is_err_and(|error| error.contains("it has none")));
    }

    #[test]
    fn mistakes_name_the_mend() {
        for (source, words) in [
            ("", "say what to lock"),
            ("order:{}", "`{order_id}`"),
            ("order:{:05}", "`{order_id}`"),
            ("order:{id:05}", "write `{id}`"),
            ("order:{order.id}", "`key_fn`"),
            ("order:{id", "write `{{`"),
            ("order:id}", "write `}}`"),
            ("{a}{b}", "write `{a}:{b}`"),
            ("{*rest}", "write `{rest}`"),
            ("{ id }", "write `{id}`"),
        ] {
            let message = Template::parse(source).expect_err(source);
            assert!(message.contains(words), "{source}: {message}");
        }
    }
}
