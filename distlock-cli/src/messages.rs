//! Messages to the user. They go to stderr: stdout is the command's.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::exit;
use crate::failure::Failure;
use crate::text::is_unseen;

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Volume {
    Quiet,
    Normal,
    Verbose,
}

/// How messages are written, and which.
pub(crate) struct Say {
    pub(crate) volume: Volume,
    pub(crate) json: bool,
}

impl Say {
    /// What went wrong; said however quiet this is to be.
    pub(crate) fn error(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        self.write(event, text, fields);
    }

    /// What is good to know.
    pub(crate) fn note(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        if self.volume >= Volume::Normal {
            self.write(event, text, fields);
        }
    }

    /// What happens when all is well.
    pub(crate) fn detail(&self, event: &str, text: &str, fields: &[(&str, Value)]) {
        if self.volume >= Volume::Verbose {
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
        // With stderr gone there is nowhere to report that it is.
        let _ = writeln!(io::stderr(), "{}", harmless(&Value::Object(object).to_string()));
    }
}

/// A line on stderr.
pub(crate) fn plain(text: &str) {
    let _ = writeln!(io::stderr(), "distlock: {text}");
}

/// Writes to stdout. A reader that has seen enough closes its end, which is no failure; a disk that is
/// full is one.
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

/// Writes JSON to stdout, for people too.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&(harmless(&format!("{value:#}")) + "\n"))
}

/// Escapes every character of the JSON that a terminal would obey or hide. Such characters occur only in
/// strings.
fn harmless(json: &str) -> String {
    let is_line_break = |c: char| c == '\n';
    if !json.contains(|c: char| is_line_break(c) || c.is_control() || is_unseen(c)) {
        return json.to_owned();
    }
    let mut harmless = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_line_break(c) && (c.is_control() || is_unseen(c)) {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            harmless.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            harmless.push(c);
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: FO7.
    #[test]
    fn what_a_terminal_obeys_or_hides_is_escaped_in_json() {
        let key = "a\u{9b}2Jb\u{202e}c\u{e0041}d\n鍵";
        let json = harmless(&format!("{:#}", serde_json::json!({ "key": key })));
        assert!(json.contains(r"a\u009b2Jb\u202ec\udb40\udc41d\n鍵"), "{json}");
        assert!(json.chars().all(|c| c == '\n' || !c.is_control() && !is_unseen(c)), "{json}");
        let read: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["key"], key);
    }
}
