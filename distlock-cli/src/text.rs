//! Text for terminals: keys, durations and columns.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Formats a key in quotes, so that spaces are visible, and without characters that move the cursor of a terminal or
/// change the order of the text around them.
pub(crate) fn quoted(key: &str) -> String {
    format!("\"{}\"", shown(key))
}

/// Formats a text like a key, but without the quotes.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_control() => shown.push('\u{fffd}'),
            // Escaped, because two keys that differ only in these characters must not look
            // alike.
            _ if is_invisible(c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
    }
    shown
}

/// Whether the character is invisible: it has no width, or it changes the direction of the text.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns the number of terminal columns that the text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns the beginning of the text with an ellipsis, if the text takes more columns than this.
pub(crate) fn capped(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut begin, mut taken) = (String::new(), 1);
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > most {
            break;
        }
        begin.push(c);
    }
    if most > 0 {
        begin.push('…');
    }
    begin
}

/// Pads the text with spaces up to this many columns.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    text.to_owned() + &" ".repeat(columns.saturating_sub(width(text)))
}

/// Formats a duration, rounded to a useful precision.
pub(crate) fn rounded(time: Duration) -> String {
    let unit = match time {
        _ if time < Duration::from_secs(1) => 1,
        _ if time < Duration::from_secs(10) => 100,
        _ => 1000,
    };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / unit * unit;
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// Formats the remaining time of a lease.
pub(crate) fn lease(rest: Option<Duration>) -> String {
    rest.map_or_else(|| "without end".to_owned(), rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: FO7.
    #[test]
    fn what_is_not_seen_is_written_out() {
        for (text, is_shown) in [
            ("order:1 ✓ ключ 鍵", "order:1 ✓ ключ 鍵"),
            ("a\u{1b}[2Jb\u{9b}c", "a\u{fffd}[2Jb\u{fffd}c"),
            ("pay\u{202e}drac", "pay\\u{202e}drac"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("a\u{200b}b\u{200d}c\u{feff}", "a\\u{200b}b\\u{200d}c\\u{feff}"),
        ] {
            assert_eq!(shown(text), is_shown);
        }
    }

    #[test]
    fn texts_are_cut_and_padded_by_columns() {
        assert_eq!(capped("order:1", 7), "order:1");
        assert_eq!(capped("order:12", 7), "order:…");
        assert_eq!(capped("鍵鍵鍵鍵", 6), "鍵鍵…", "each takes two");
        assert_eq!(capped("order", 1), "…");
        assert_eq!(capped("order", 0), "");
        assert_eq!(padded("鍵", 4), "鍵  ");
        assert_eq!(padded("order", 4), "order");
    }
}
