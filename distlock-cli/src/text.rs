//! Texts for people.

use std::time::Duration;

/// A key as it is shown: in quotes, so that spaces are seen, and with nothing in it that moves the
/// cursor of a terminal.
pub(crate) fn quoted(key: &str) -> String {
    format!("\"{}\"", shown(key))
}

/// The same without the quotes.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A time: no finer than is of use.
pub(crate) fn rounded(time: Duration) -> String {
    let unit = match time {
        _ if time < Duration::from_secs(1) => 1,
        _ if time < Duration::from_secs(10) => 100,
        _ => 1000,
    };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / unit * unit;
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// What is left of a lease.
pub(crate) fn lease(rest: Option<Duration>) -> String {
    rest.map_or_else(|| "without end".to_owned(), rounded)
}
