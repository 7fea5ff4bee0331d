//! Patterns for keys.

/// Whether a key matches a pattern: `*` matches any text, `?` one character, and a character after a `\` matches
/// itself.
pub(crate) fn matches_pattern(pattern: &str, key: &str) -> bool {
    /// A part of a pattern.
    #[derive(PartialEq)]
    enum PatternPart {
        Any,
        One,
        Is(char),
    }
    let (mut pattern, mut rest) = (Vec::new(), pattern.chars());
    while let Some(c) = rest.next() {
        pattern.push(match c {
            '*' => PatternPart::Any,
            '?' => PatternPart::One,
            '\\' => PatternPart::Is(rest.next().unwrap_or(c)),
            c => PatternPart::Is(c),
        });
    }
    let key: Vec<char> = key.chars().collect();
    let (mut p, mut k) = (0, 0);
    // The position to retry from, if the part after the last `*` does not match.
    let mut retry = None;
    while k < key.len() {
        match pattern.get(p) {
            Some(PatternPart::Any) => {
                retry = Some((p, k));
                p += 1;
            }
            Some(PatternPart::One) => (p, k) = (p + 1, k + 1),
            Some(PatternPart::Is(c)) if *c == key[k] => (p, k) = (p + 1, k + 1),
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (p, k) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|part| *part == PatternPart::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, key, is) in [
            ("*", "", true),
            ("order:*", "order:42", true),
            ("order:*", "orders", false),
            ("*:42", "order:42", true),
            ("o*r*2", "order:42", true),
            ("o*r*3", "order:42", false),
            ("order:??", "order:42", true),
            ("order:?", "order:42", false),
            ("order", "order:42", false),
            ("[a]", "[a]", true),
            ("a**b", "ab", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            (r"\\*", r"\n", true),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(matches_pattern(pattern, key), is, "{pattern} {key}");
        }
    }
}
