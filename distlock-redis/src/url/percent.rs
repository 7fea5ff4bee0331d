//! Percent-encoding.

/// The text that is meant; `None` if it is not valid UTF-8. A `%` that begins no code stands for itself, and
/// so does a `+`, which is frequent in generated passwords.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|code| {
            let digit = |at: usize| char::from(code[at]).to_digit(16);
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        });
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn what_is_no_code_stands_for_itself() {
        for (text, meant) in [
            ("", Some("")),
            ("a%40b%2fc", Some("a@b/c")),
            ("100%", Some("100%")),
            ("%4", Some("%4")),
            ("%zz%2", Some("%zz%2")),
            ("%C3%A4+", Some("ä+")),
            ("%ff", None),
        ] {
            assert_eq!(decoded(text).as_deref(), meant, "{text}");
        }
    }
}
