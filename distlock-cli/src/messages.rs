//! Messages to the user on stderr, because stdout belongs to the command, and output on stdout.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::exit::{self, Failure};
use crate::text::is_invisible;

/// The amount of messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// Writes the messages of `run`, as text or as JSON.
pub(crate) struct Reporter {
    pub(crate) verbosity: Verbosity,
    pub(crate) json: bool,
}

impl Reporter {
    /// Reports an error, at every verbosity.
    pub(crate) fn error(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        self.write(event, text, fields);
    }

    /// Reports an event that users should know of.
    pub(crate) fn note(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        if self.verbosity >= Verbosity::Normal {
            self.write(event, text, fields);
        }
    }

    /// Reports an event that is part of a normal run.
    pub(crate) fn detail(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        if self.verbosity >= Verbosity::Verbose {
            self.write(event, text, fields);
        }
    }

    fn write(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        if !self.json {
            return plain(text);
        }
        let mut object = Map::new();
        object.insert("event".to_owned(), event.into());
        object.insert("message".to_owned(), text.into());
        object.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        // A failure cannot be reported, because only stderr could show it.
        let _ =
            writeln!(io::stderr(), "{}", escape_unprintable(&Value::Object(object).to_string()));
    }
}

/// Writes a line to stderr.
pub(crate) fn plain(text: &str) {
    let _ = writeln!(io::stderr(), "distlock: {text}");
}

/// Writes to stdout. A closed pipe is no failure, because the reader has seen enough; a full disk is one.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let text = format!("standard output cannot be written: {error}");
            Err(Failure { text, code: exit::FAILED })
        }
        _ => Ok(()),
    }
}

/// Writes JSON to stdout, with line breaks and indentation.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&(escape_unprintable(&format!("{value:#}")) + "\n"))
}

/// Escapes every character of the JSON that a terminal would obey or hide. Such characters occur only in
/// strings.
fn escape_unprintable(json: &str) -> String {
    let is_line_break = |c: char| c == '\n';
    if !json.contains(|c: char| is_line_break(c) || c.is_control() || is_invisible(c)) {
        return json.to_owned();
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_line_break(c) && (c.is_control() || is_invisible(c)) {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: FO7.
    #[test]
    fn what_a_terminal_obeys_or_hides_is_escaped_in_json() {
        let key = "a\u{9b}2Jb\u{202e}c\u{e0041}d\n鍵";
        let json = escape_unprintable(&format!("{:#}", serde_json::json!({ "key": key })));
        assert!(json.contains(r"a\u009b2Jb\u202ec\udb40\udc41d\n鍵"), "{json}");
        assert!(json.chars().all(|c| c == '\n' || !c.is_control() && !is_invisible(c)), "{json}");
        let read: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["key"], key);
    }
}
