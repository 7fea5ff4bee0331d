//! Who holds a lock: the owner token that is stored as the lock's value.
//!
//! `<process>.<sequence>.<claim><mode>`: a version 4 UUID for each manager, a counter in base 36,
//! how long a reserved lock waits for its next owner in milliseconds, and whether that owner can
//! be told (`s`) or looks by itself (`n`). A token names one lease and is used once.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Claim and mode of every token: a reserved lock waits a second for its owner, who is not told but
/// looks by itself.
const CLAIM_AND_MODE: &str = ".1000n";

/// The identity of one manager, and the source of its tokens.
#[derive(Debug)]
pub(crate) struct Owner {
    process: String,
    issued: AtomicU64,
}

impl Owner {
    pub(crate) fn new() -> Self {
        Self { process: Uuid::new_v4().simple().to_string(), issued: AtomicU64::new(0) }
    }

    /// A token that was never issued before.
    pub(crate) fn issue(&self) -> String {
        let sequence = self.issued.fetch_add(1, Ordering::Relaxed);
        let mut token = String::with_capacity(self.process.len() + 24);
        token.push_str(&self.process);
        token.push('.');
        push_base36(&mut token, sequence);
        token.push_str(CLAIM_AND_MODE);
        token
    }
}

fn push_base36(text: &mut String, mut number: u64) {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = [0u8; 13];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = DIGITS[(number % 36) as usize];
        number /= 36;
        if number == 0 {
            break;
        }
    }
    text.extend(digits[at..].iter().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_distinct_and_well_formed() {
        let (a, b) = (Owner::new(), Owner::new());
        let tokens = [a.issue(), a.issue(), b.issue(), b.issue()];
        for (i, token) in tokens.iter().enumerate() {
            assert!(!tokens[..i].contains(token));
            let parts: Vec<_> = token.split('.').collect();
            assert_eq!(parts.len(), 3);
            assert_eq!(parts[0].len(), 32);
        }
    }

    #[test]
    fn base36() {
        let text = |n| {
            let mut s = String::new();
            push_base36(&mut s, n);
            s
        };
        assert_eq!(text(0), "0");
        assert_eq!(text(35), "z");
        assert_eq!(text(36), "10");
        assert_eq!(text(u64::MAX), "3w5e11264sgsf");
    }
}
