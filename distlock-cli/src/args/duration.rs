//! Durations on the command line.

use std::time::Duration;

/// Longer than any process runs. It can be added to a clock without an overflow.
const FOREVER: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

/// Parses `5s`, `1m 30s`, `500ms` and `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) && text.bytes().any(|byte| byte != b'0') {
        return Err(format!("it has no unit; write `{text}s` for seconds, or `{text}m`"));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte == b'0') {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a duration such as `5s` or `1m 30s`"))
}

/// Parses a ttl. It must be long enough to start a command under the lock, and to end it in time.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_millis(100);
    match duration(text)? {
        ttl if ttl < LEAST => Err("it is too short for a command; give at least 100ms".to_owned()),
        ttl => Ok(ttl),
    }
}

/// Parses a duration, `forever`, or `none`.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "forever" => Ok(FOREVER),
        "none" => Ok(Duration::ZERO),
        text => duration(text).map(|wait| wait.min(FOREVER)).map_err(|why| {
            // The user may have meant one of these words.
            why + ", `forever`, or `none`"
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(wait("none"), Ok(Duration::ZERO));
        assert_eq!(wait("forever"), Ok(FOREVER));
    }

    #[test]
    fn a_number_alone_is_asked_for_its_unit() {
        assert!(duration("5").is_err_and(|why| why.contains("`5s`")));
        for text in ["", "x", "5x", "-5s", "1.5", "5 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
