//! The owner token: the text that a store keeps as the value of a lock. A token names one lease and is used once.
//!
//! Its form is `<process>.<counter><time>.<reservation><mode><limit>`:
//!
//! | part | meaning |
//! |---|---|
//! | process | a version 4 UUID of the manager, in base 36 |
//! | counter | counts the manager's tokens, in base 36 |
//! | time | the last two seconds of the clock, in base 36 |
//! | reservation | how long a reserved lock waits for this owner, in milliseconds |
//! | mode | `s` if the owner is notified, `n` if it polls |
//! | limit | how [many](Limit) may hold the lock while this token is let in: nothing for an exclusive lock, a number of permits, or `r` for a read lock |
//!
//! The token of an exclusive lock has at most 44 bytes until a process has taken two thousand million locks. Redis keeps
//! a value of up to 44 bytes in one piece with its header, and a lock costs the server 3 % less.
//!
//! The time is there for virtual machines that are cloned, or resumed twice from one snapshot. Both have the UUID and the
//! counter, and a lock that one of them took must not look like the other's. Random numbers would not help, because their
//! source was cloned as well.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Moment;
use crate::limit::Limit;

/// How many digits a UUID has in base 36.
const UUID: usize = 25;
/// How many digits the time has: the last two seconds, in nanoseconds. The number is fixed, so that these digits cannot be
/// taken for digits of the counter.
const TIME: usize = 6;
/// How many values the time may have.
const TIMES: u64 = 36_u64.pow(TIME as u32);

/// The identity of one manager, and the source of its tokens.
#[derive(Debug)]
pub struct Identity {
    process: String,
    issued: AtomicU64,
    recent: Recent,
}

impl Identity {
    /// Makes an identity that no other manager has.
    #[expect(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        let mut process = String::with_capacity(UUID);
        push_uuid(&mut process, Uuid::new_v4());
        Self::of(process)
    }

    /// Makes the identity with this name. No other manager on the same store may have it.
    pub fn of(process: String) -> Self {
        Self { process, issued: AtomicU64::new(0), recent: Recent::default() }
    }

    /// Returns the name of the manager, which its tokens begin with.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// Issues a token that was never issued before. If its owner is `notified` of a lock that is reserved for it, it has the
    /// time `reservation` to answer. At most `limit` hold the lock while the token is let in.
    #[inline]
    pub fn issue(
        &self,
        notified: bool,
        reservation: Duration,
        limit: Limit,
        now: Moment,
    ) -> String {
        let sequence = self.issued.fetch_add(1, Ordering::Relaxed);
        let time = now.as_nanos() % TIMES;
        self.recent.note(sequence, time);
        let mut end = Tail::new();
        match limit.as_permits() {
            Some(permits) => end.number::<10>(1, permits.get().into()),
            None if limit.is_read() => end.push(b'r'),
            None => {}
        }
        end.push(if notified { b's' } else { b'n' });
        end.number::<10>(1, u64::try_from(reservation.as_millis()).unwrap_or(u64::MAX));
        end.push(b'.');
        end.number::<36>(TIME, time);
        end.number::<36>(1, sequence);
        end.push(b'.');
        let end = end.text();
        let mut token = String::with_capacity(self.process.len() + end.len());
        token.push_str(&self.process);
        token.push_str(end);
        token
    }

    /// Returns what this manager remembers of a token. A token that a clone of this machine issued is not ours, although
    /// it begins with our name.
    pub fn state_of(&self, token: &str) -> TokenState {
        self.number(token).map_or(TokenState::None, |number| self.recent.recall(number))
    }

    /// Notes that the store has answered the release of a token.
    pub fn finish(&self, token: &str) {
        if let Some(number) = self.number(token) {
            self.recent.finish(number);
        }
    }

    /// Returns the counter and the time of a token of this manager, as one number; `None` for other tokens.
    pub fn number(&self, token: &str) -> Option<u64> {
        let token = Token::parse(token).filter(|token| token.process == self.process)?;
        u64::from_str_radix(token.number, 36).ok()
    }
}

/// The state of one token, as its manager remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// The manager did not issue the token, or issued it too long ago.
    None,
    /// The manager issued the token, and the store has not answered a release of it.
    Issued,
    /// The store has answered the release.
    Finished,
}

/// A manager remembers its last `PARTS * PART` tokens. Each part is allocated when it is first used.
const PARTS: usize = 64;
const PART: usize = 1024;

/// Notes about the last tokens, by their counter. A note is twice the counter and the time as one number, plus one if the
/// release is finished. A note of zero means no token.
#[derive(Debug)]
struct Recent([OnceLock<Box<[AtomicU64; PART]>>; PARTS]);

impl Default for Recent {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl Recent {
    /// Returns where a token of this number is noted, and its note.
    fn place(number: u64) -> (usize, usize, u64) {
        let at = usize::try_from((number / TIMES) % (PARTS * PART) as u64).unwrap_or_default();
        (at / PART, at % PART, number.wrapping_add(1).wrapping_mul(2))
    }

    #[inline]
    fn note(&self, sequence: u64, time: u64) {
        let (part, at, note) = Self::place(sequence.wrapping_mul(TIMES).wrapping_add(time));
        let part =
            self.0[part].get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
        part[at].store(note, Ordering::Relaxed);
    }

    fn recall(&self, number: u64) -> TokenState {
        let (part, at, note) = Self::place(number);
        match self.0[part].get().map(|part| part[at].load(Ordering::Relaxed)) {
            Some(noted) if noted == note => TokenState::Issued,
            Some(noted) if noted == note + 1 => TokenState::Finished,
            _ => TokenState::None,
        }
    }

    fn finish(&self, number: u64) {
        let (part, at, note) = Self::place(number);
        if let Some(part) = self.0[part].get() {
            // A newer token may have replaced the note.
            let (issued, finished) = (note, note + 1);
            let _ =
                part[at].compare_exchange(issued, finished, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The parts of an owner token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The manager that issued it.
    pub process: &'a str,
    /// The counter and the time. The process uses this number once.
    pub number: &'a str,
    /// How long the lock is reserved for it when its turn has come.
    pub reservation: Duration,
    /// Whether its process is notified; otherwise it polls.
    pub notified: bool,
    /// How many may hold the lock while it is let in.
    pub limit: Limit,
}

impl<'a> Token<'a> {
    /// Reads a token. Returns `None` for a text that is no token of distlock.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('.');
        let (process, number, last) = (parts.next()?, parts.next()?, parts.next()?);
        let (reservation, limit) = last.split_once(['s', 'n'])?;
        let notified = last.as_bytes()[reservation.len()] == b's';
        let limit = Limit::parse(limit)?;
        let reservation = Duration::from_millis(reservation.parse().ok()?);
        let whole = parts.next().is_none() && !process.is_empty();
        whole.then_some(Self { process, number, reservation, notified, limit })
    }
}

/// Appends a UUID in base 36, always with the same number of digits.
fn push_uuid(text: &mut String, uuid: Uuid) {
    // Two times twelve digits, which fit into 64 bits, and the rest.
    const HALF: u128 = 36_u128.pow(12);
    let uuid = uuid.as_u128();
    let digits = |part: u128| u64::try_from(part).unwrap_or_default();
    let mut end = Tail::new();
    end.number::<36>(12, digits(uuid % HALF));
    end.number::<36>(12, digits(uuid / HALF % HALF));
    end.number::<36>(UUID - 24, digits(uuid / HALF / HALF));
    text.push_str(end.text());
}

/// The end of a text. It is written backwards, in the order in which the digits of a number are computed.
struct Tail {
    text: [u8; Self::ROOM],
    at: usize,
}

impl Tail {
    /// More than three numbers need.
    const ROOM: usize = 64;

    fn new() -> Self {
        Self { text: [0; Self::ROOM], at: Self::ROOM }
    }

    fn push(&mut self, byte: u8) {
        self.at -= 1;
        self.text[self.at] = byte;
    }

    /// Writes a number with at least `least` digits. The base is a constant for the compiler: divisions by an unknown
    /// number would be most of the cost of a token.
    #[inline]
    fn number<const BASE: u64>(&mut self, least: usize, mut number: u64) {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let mut digits = 0;
        // The loop always ends with a break, because there is room for more digits than a number has.
        for place in self.text[..self.at].iter_mut().rev() {
            *place = DIGITS[(number % BASE) as usize];
            number /= BASE;
            digits += 1;
            if number == 0 && digits >= least {
                break;
            }
        }
        self.at -= digits;
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.text[self.at..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVATION: Duration = Duration::from_millis(1500);

    /// Fault: H9.
    #[test]
    fn tokens_are_distinct_and_well_formed() {
        let (a, b) = (Identity::new(), Identity::new());
        let issue =
            |identity: &Identity| identity.issue(true, RESERVATION, Limit::ALONE, Moment::NEVER);
        let tokens = [issue(&a), issue(&a), issue(&b), issue(&b)];
        for (i, token) in tokens.iter().enumerate() {
            assert!(!tokens[..i].contains(token));
            let parsed = Token::parse(token).expect("one of ours");
            assert_eq!(parsed.process.len(), UUID);
            assert!(token.len() <= 44, "{token}");
            assert_eq!((parsed.reservation, parsed.notified), (RESERVATION, true));
            assert_eq!(parsed.limit, Limit::ALONE);
        }
    }

    #[test]
    fn f25_only_tokens_that_were_issued_here_are_known() {
        let identity = Identity::new();
        let issue = |nanos| {
            let now = Moment::from_nanos(nanos);
            identity.issue(true, RESERVATION, Limit::ALONE, now)
        };
        let first = issue(7);
        assert_eq!(identity.state_of(&first), TokenState::Issued);
        identity.finish(&first);
        assert_eq!(identity.state_of(&first), TokenState::Finished);
        // A clone has the same name and counter at another time, or a counter that this manager has not reached.
        let Token { process, number, .. } = Token::parse(&first).expect("a token");
        let (sequence, _) = number.split_at(number.len() - TIME);
        for other in [format!("{sequence}000008"), "1000007".to_owned(), "zzzzzzzzzzzzz".to_owned()]
        {
            let other = format!("{process}.{other}.1500s");
            assert_eq!(identity.state_of(&other), TokenState::None, "{other}");
        }
        assert_eq!(Identity::new().state_of(&first), TokenState::None, "another process");
        for nanos in 0..(PARTS * PART) as u64 {
            issue(nanos);
        }
        assert_eq!(identity.state_of(&first), TokenState::None, "too long ago");
        assert_eq!(identity.state_of(&issue(9)), TokenState::Issued);
    }

    #[test]
    fn other_values_are_not_tokens() {
        let issue = |limit| Identity::new().issue(false, RESERVATION, limit, Moment::from_nanos(0));
        let polls = issue(Limit::ALONE);
        assert!(Token::parse(&polls).is_some_and(|token| !token.notified));
        for text in [
            "",
            "locked",
            "a.b",
            "a.b.c",
            "a.b.12",
            "a.b.12x",
            ".b.12s",
            "a.b.12s.d",
            "a.b.12s0",
            "a.b.12s1",
            "a.b.12sx",
            "a.b.12sr5",
            "a.b.s",
            "a.b.12ss",
        ] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_token_ends_with_its_limit() {
        let issue = |limit| Identity::new().issue(true, RESERVATION, limit, Moment::from_nanos(0));
        let alone = issue(Limit::ALONE);
        assert!(alone.ends_with(".1500s"), "{alone}");
        for (limit, end) in [(Limit::READ, ".1500sr"), (Limit::permits(5).expect("5"), ".1500s5")] {
            let token = issue(limit);
            assert!(token.ends_with(end), "{token}");
            assert_eq!(Token::parse(&token).map(|token| token.limit), Some(limit));
        }
    }

    #[test]
    fn uuids_of_all_sizes() {
        let text = |n| {
            let mut s = String::new();
            push_uuid(&mut s, Uuid::from_u128(n));
            s
        };
        assert_eq!(text(0), "0".repeat(UUID));
        assert_eq!(text(36_u128.pow(24)), format!("1{}", "0".repeat(24)));
        assert_eq!(text(u128::MAX), "f5lxx1zz5pnorynqglhzmsp33");
        let parsed = u128::from_str_radix(&text(u128::MAX), 36);
        assert_eq!(parsed, Ok(u128::MAX));
    }

    #[test]
    fn numbers() {
        fn text<const BASE: u64>(least: usize, n: u64) -> String {
            let mut s = Tail::new();
            s.number::<BASE>(least, n);
            s.text().to_owned()
        }
        assert_eq!(text::<36>(4, 0), "0000");
        assert_eq!(text::<36>(4, 36), "0010");
        assert_eq!(text::<36>(1, 1296), "100");
        assert_eq!(text::<36>(1, 0), "0");
        assert_eq!(text::<36>(1, 35), "z");
        assert_eq!(text::<36>(1, 36), "10");
        assert_eq!(text::<36>(1, u64::MAX), "3w5e11264sgsf");
        assert_eq!(text::<10>(1, u64::MAX), u64::MAX.to_string());
    }
}
