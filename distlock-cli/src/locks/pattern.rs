//! Patterns of keys.

/// Whether a key fits a pattern: `*` stands for any text, `?` for one character, and a character behind a
/// `\` for itself.
pub(crate) fn fits(pattern: &str, key: &str) -> bool {
    /// Of a pattern.
    #[derive(PartialEq)]
    enum Part {
        Any,
        One,
        Is(char),
    }
    let (mut pattern, mut rest) = (Vec::new(), pattern.chars());
    while let Some(c) = rest.next() {
        pattern.push(match c {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => Part::Is(rest.next().unwrap_or(c)),
            c => Part::Is(c),
        });
    }
    let key: Vec<char> = key.chars().collect();
    let (mut p, mut k) = (0, 0);
    // Where to go on if what follows the last `*` does not fit.
    let mut again = None;
    while k < key.len() {
        match pattern.get(p) {
            Some(Part::Any) => {
                again = Some((p, k));
                p += 1;
            }
            Some(Part::One) => (p, k) = (p + 1, k + 1),
            Some(Part::Is(c)) if *c == key[k] => (p, k) = (p + 1, k + 1),
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    (p, k) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|part| *part == Part::Any)
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
            assert_eq!(fits(pattern, key), is, "{pattern} {key}");
        }
    }
}
