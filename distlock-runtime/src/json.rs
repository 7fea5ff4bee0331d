//! As much of JSON as the messages between processes need: written by hand, read with limits. What is read
//! may come from any client that may publish.

use std::fmt::Write as _;

/// No message between processes is nested more deeply.
const DEEPEST: usize = 8;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Not negative and whole; every other number is `Null`.
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// `None` for what is not JSON, or nested too deeply.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_space();
        (reader.at == text.len()).then_some(value)
    }

    /// What an object has under that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().find(|(of, _)| of == name).map(|(_, is)| is),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of a list; none if there is no list under that name.
    pub(crate) fn list(&self, name: &str) -> &[Self] {
        match self.get(name) {
            Some(Self::List(list)) => list,
            _ => &[],
        }
    }
}

/// Writes one object, field by field.
pub(crate) struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    pub(crate) fn new() -> Self {
        Self { text: "{".to_owned() }
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        push_text(&mut self.text, value);
        self
    }

    /// Nothing for `None`.
    pub(crate) fn maybe_text(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    pub(crate) fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// How many bytes it has so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// What is JSON already.
    pub(crate) fn raw(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.text.push_str(value);
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }

    fn name(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        push_text(&mut self.text, name);
        self.text.push(':');
    }
}

/// Writes a string as JSON does, with its quotes.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\n', '\r', '\t']).len();
    }

    /// Takes `token` if it comes next.
    fn takes(&mut self, token: &str) -> bool {
        self.skip_space();
        let takes = self.rest().starts_with(token);
        self.at += if takes { token.len() } else { 0 };
        takes
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEEPEST {
            return None;
        }
        for (token, value) in
            [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
        {
            if self.takes(token) {
                return Some(value);
            }
        }
        if self.takes("[") {
            return self.list(depth);
        }
        if self.takes("{") {
            return self.object(depth);
        }
        match self.rest().chars().next()? {
            '"' => self.string().map(Json::Text),
            c if c == '-' || c.is_ascii_digit() => Some(self.number()),
            _ => None,
        }
    }

    fn list(&mut self, depth: usize) -> Option<Json> {
        let mut list = Vec::new();
        if self.takes("]") {
            return Some(Json::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if self.takes("]") {
                return Some(Json::List(list));
            }
            self.takes(",").then_some(())?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut fields = Vec::new();
        if self.takes("}") {
            return Some(Json::Object(fields));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.takes(":").then_some(())?;
            fields.push((name, self.value(depth + 1)?));
            if self.takes("}") {
                return Some(Json::Object(fields));
            }
            self.takes(",").then_some(())?;
        }
    }

    fn number(&mut self) -> Json {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let number = rest[..end].parse().map_or(Json::Null, Json::Number);
        self.at += end;
        number
    }

    fn string(&mut self) -> Option<String> {
        self.rest().starts_with('"').then_some(())?;
        self.at += 1;
        let mut text = String::new();
        loop {
            let c = self.next()?;
            match c {
                '"' => return Some(text),
                '\\' => text.push(self.escaped()?),
                c => text.push(c),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                (self.next()? == '\\' && self.next()? == 'u').then_some(())?;
                let second = self.unit()?;
                let low = second.checked_sub(0xdc00)?;
                char::from_u32(0x10000 + ((first - 0xd800) << 10) + low)?
            }
            c @ ('"' | '\\' | '/') => c,
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        let unit = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let texts =
            ["", "plain", "quote \" back \\ slash", "line\nbreak\u{0}\u{1f}\u{85}", "é\u{1f512}"];
        for text in texts {
            let json = ObjectWriter::new().text("t", text).number("n", u64::MAX).raw("l", "[1,2]");
            let json = json.maybe_text("none", None).end();
            let read = Json::parse(&json).expect("JSON");
            assert_eq!(read.text("t"), Some(text), "{json}");
            assert_eq!(read.number("n"), Some(u64::MAX));
            assert_eq!(read.list("l"), [Json::Number(1), Json::Number(2)]);
            assert!(read.get("none").is_none() && !json.chars().any(char::is_control));
        }
    }

    #[test]
    fn of_others() {
        let text = r#" { "a" : [ true , null , { } , [ ] , -1 , 1.5e3 ] , "b" : "\ud83d\udd12\u00e9\/" } "#;
        let read = Json::parse(text).expect("JSON");
        assert_eq!(read.text("b"), Some("\u{1f512}é/"));
        let empty = [Json::Object(Vec::new()), Json::List(Vec::new())];
        assert_eq!(read.list("a")[2..4], empty);
        assert_eq!(read.list("a")[4..], [Json::Null, Json::Null], "no numbers of ours");
    }

    #[test]
    fn what_is_no_json_is_nothing() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "}",
            "{\"a\"}",
            "{\"a\":}",
            "[1,]",
            "[1 2]",
            "\"open",
            "\"\\u12\"",
            "\"\\ud83d\"",
            "\"\\ud83d\\u0041\"",
            "nul",
            "1 1",
            "{\"a\":1}x",
            "é",
            "\"\\u00é0\"",
            &deep,
        ] {
            assert_eq!(Json::parse(text), None, "{text:.20}");
        }
    }
}
