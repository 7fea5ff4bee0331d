//! Durations in the attribute: `"5s"` and `"1m 30s"` become a `Duration` while compiling.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// Parses a duration. The error says what is wrong and how to write it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Some(unit) = calendar_unit(text) {
        let hint = match unit {
            "M" => "minutes are written `m`",
            _ => "write days (`d`) or hours (`h`)",
        };
        return Err(format!("`{unit}` has no fixed length: {hint}"));
    }
    if is_outsized(text) {
        return Err(format!("`{text}` is too long a duration"));
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::Empty => "empty duration: write for example `5s`".to_owned(),
        humantime::DurationError::NumberOverflow => {
            format!("`{text}` is too long a duration, or finer than a nanosecond")
        }
        _ if is_number(text) => {
            let number = text.trim();
            format!("`{text}` has no unit: write `{number}s` or `{number}ms`")
        }
        _ => format!("`{text}` is not a duration: write for example `5s`, `500ms` or `1m 30s`"),
    })
}

/// Returns code that makes the duration at run time, in the largest unit that holds it exactly.
pub(crate) fn tokens(duration: Duration) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if duration.is_zero() {
        quote!(::core::time::Duration::ZERO)
    } else if nanos == 0 {
        let seconds = Literal::u64_unsuffixed(seconds);
        quote!(::core::time::Duration::from_secs(#seconds))
    } else if let (0, Ok(millis)) = (nanos % 1_000_000, u64::try_from(duration.as_millis())) {
        let millis = Literal::u64_unsuffixed(millis);
        quote!(::core::time::Duration::from_millis(#millis))
    } else {
        let (seconds, nanos) = (Literal::u64_unsuffixed(seconds), Literal::u32_unsuffixed(nanos));
        quote!(::core::time::Duration::new(#seconds, #nanos))
    }
}

/// Whether humantime might panic: its sum overflows for durations near `u64::MAX` seconds.
fn is_outsized(text: &str) -> bool {
    text.len() > 100 || text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 12)
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Finds a unit whose length depends on the calendar. humantime would take an average length.
fn calendar_unit(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_alphabetic()).find(|unit| {
        matches!(*unit, "M" | "month" | "months" | "y" | "yr" | "yrs" | "year" | "years")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in [
            ("5s", 5_000),
            ("5 s", 5_000),
            ("500ms", 500),
            ("1m 30s", 90_000),
            ("2h", 7_200_000),
            ("1day", 86_400_000),
            ("1.5s", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, words) in [
            ("", "empty"),
            ("5", "has no unit: write `5s`"),
            ("1M", "minutes are written `m`"),
            ("1 month", "has no fixed length"),
            ("2 years", "has no fixed length"),
            ("1y", "has no fixed length"),
            ("-5s", "not a duration"),
            ("5 sekunden", "not a duration"),
            ("soon", "not a duration"),
            ("99999999999999999999s", "too long"),
            ("30500568904943w 25215s 1000000000ns", "too long"),
            ("999999999999y", "has no fixed length"),
            ("1.0000000000001s", "too long"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn emits_the_largest_exact_unit() {
        for (text, code) in [
            ("0s", "ZERO"),
            ("5s", "from_secs (5)"),
            ("1500ms", "from_millis (1500)"),
            ("1s 1ns", "new (1 , 1)"),
        ] {
            let emitted = tokens(parse(text).expect(text)).to_string();
            assert!(emitted.ends_with(code), "{text}: {emitted}");
        }
    }
}
