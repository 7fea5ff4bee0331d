//! "Did you mean": the nearest of the names that would have been right.

/// The name nearest to `wrong`, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(
    wrong: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wrong = plain(wrong);
    // One slip in three letters: `tll` finds `ttl`, while `retry` finds nothing.
    let limit = (wrong.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(&wrong, &plain(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Names that differ only in `camelCase` or `snake_case` are the same slip.
pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Edits between two words, a swap of neighbours counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("wiat", "wait"), 1);
    }

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let names = ["key", "ttl", "wait", "manager", "max_hold"];
        assert_eq!(nearest("tll", names), Some("ttl"));
        assert_eq!(nearest("mangaer", names), Some("manager"));
        assert_eq!(nearest("maxHold", names), Some("max_hold"));
        assert_eq!(nearest("retry", names), None);
    }
}
