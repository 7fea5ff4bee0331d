//! The names of nodes, and the holders and waiters that the nodes of a lock stand for.
//!
//! ```text
//! /chroot/distlock                      the root of all locks
//!   distlock:lock:{order:7}             a lock in use
//!     x-<token>                         an exclusive holder
//!     s-<token>                         one of several holders
//!     q-<token>-0000000003              a waiter
//!     r-<token>-0000000004              a waiting reader
//!   distlock:process:<number>           a process that has a session
//! ```

use std::fmt::Write as _;
use std::time::Duration;

/// The limit of an encoded name. Many names have to fit into one answer.
const LONGEST_NAME: usize = 8000;

/// Returns the node of a lock below the root of all locks, or `None` if the name is too long.
pub(crate) fn directory(root: &str, name: &str) -> Option<String> {
    let mut path = format!("{root}/");
    for byte in name.bytes() {
        match byte {
            // ZooKeeper forbids some of the other characters, and some are hard to tell apart.
            b'/' | b'%' => drop(write!(path, "%{byte:02X}")),
            byte if byte.is_ascii_graphic() || byte == b' ' => path.push(char::from(byte)),
            byte => drop(write!(path, "%{byte:02X}")),
        }
    }
    (path.len() - root.len() <= LONGEST_NAME).then_some(path)
}

/// Decodes `%XX`, in the names of nodes and in URLs. Returns `None` where no two hexadecimal digits follow a `%`,
/// and for text that is not UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

/// Returns the node of a holder.
pub(crate) fn holder(directory: &str, token: &str, exclusive: bool) -> String {
    format!("{directory}/{}-{token}", if exclusive { 'x' } else { 's' })
}

/// Returns the node of a waiter up to its number.
pub(crate) fn waiter(directory: &str, token: &str, reads: bool) -> String {
    format!("{directory}/{}-{token}-", if reads { 'r' } else { 'q' })
}

/// Returns the data of a holder's node: how long a lease is, for whoever inspects the lock.
pub(crate) fn holder_data(ttl: Duration) -> Vec<u8> {
    ttl.as_millis().to_string().into_bytes()
}

/// Returns the lease that the data of a holder's node names.
pub(crate) fn ttl_of(data: Vec<u8>) -> Duration {
    let millis = String::from_utf8(data).ok().and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(0))
}

/// Writes the number of a waiter's node as ZooKeeper does: ten digits, or a minus and more digits once the
/// directory's counter has wrapped.
pub(crate) fn number(number: i32) -> String {
    format!("{number:010}")
}

/// Returns a waiter's token and number from the part of its node's name after `q-` or `r-`.
fn token_and_number(text: &str) -> Option<(&str, i32)> {
    let (rest, digits) = text.rsplit_once('-')?;
    let digits: i64 = digits.parse().ok()?;
    // A negative number begins with a minus of its own.
    let (token, number) = match rest.strip_suffix('-') {
        Some(token) => (token, -digits),
        None => (rest, digits),
    };
    Some((token, i32::try_from(number).ok()?))
}

/// Returns the number of a waiter from the path of its node.
pub(crate) fn number_of(path: &str) -> Option<i32> {
    token_and_number(path.rsplit('/').next()?).map(|(_, number)| number)
}

/// Returns the ticket of a waiter. It is never 0, and still grows when the number wraps.
pub(crate) fn ticket(number: i32) -> u64 {
    u64::from(number.cast_unsigned()) + 1
}

/// Returns the number of a ticket, or `None` for the ticket 0, which asks for a new place at the end.
pub(crate) fn number_at(ticket: u64) -> Option<i32> {
    Some(u32::try_from(ticket.checked_sub(1)?).ok()?.cast_signed())
}

/// The holders and waiters of a lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LockChildren {
    pub(crate) holders: Vec<HolderNode>,
    /// The waiters in order.
    pub(crate) queue: Vec<WaiterNode>,
}

/// The node of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderNode {
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) exclusive: bool,
}

/// The node of a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaiterNode {
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) number: i32,
    pub(crate) reads: bool,
}

impl LockChildren {
    /// Reads the names of a lock node's children.
    pub(crate) fn of(names: Vec<String>) -> Self {
        let mut children = Self::default();
        for node in names {
            match node.split_once('-') {
                Some((kind @ ("x" | "s"), token)) => {
                    let (exclusive, token) = (kind == "x", token.to_owned());
                    children.holders.push(HolderNode { node, token, exclusive });
                }
                Some((kind @ ("q" | "r"), rest)) => {
                    let Some((token, number)) = token_and_number(rest) else { continue };
                    let (reads, token) = (kind == "r", token.to_owned());
                    children.queue.push(WaiterNode { node, token, number, reads });
                }
                // Not a node of distlock.
                _ => {}
            }
        }
        // The counter wraps, so 2147483647 comes before -2147483648. The numbers of one queue are always less
        // than half the range apart.
        let any = children.queue.first().map_or(0, |waiter| waiter.number);
        children.queue.sort_by(|a, b| {
            let place = |waiter: &WaiterNode| waiter.number.wrapping_sub(any);
            (place(a), &a.token).cmp(&(place(b), &b.token))
        });
        children
    }

    /// Returns whether nobody holds the lock or waits for it.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Returns whether one more holder fits beside the others, if there may be `most` of them.
    pub(crate) fn fits(&self, most: u32) -> bool {
        let holders = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        !self.holders.iter().any(|holder| holder.exclusive) && holders < most
    }

    /// Returns the position of a token in the queue.
    pub(crate) fn rank(&self, token: &str) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.token == token)
    }

    /// Returns whether a token holds the lock.
    pub(crate) fn holds(&self, token: &str) -> bool {
        self.holders.iter().any(|holder| holder.token == token)
    }

    /// Returns how many others wait after a position. Readers after a reader do not count, because they are let in
    /// together with it.
    pub(crate) fn behind(&self, rank: usize) -> usize {
        let reads = self.queue[rank].reads;
        self.queue[rank + 1..].iter().filter(|other| !(reads && other.reads)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_own_node() {
        for text in ["distlock:lock:{order:7}", "a/b%c", "a%2Fb", "ключ\u{1}", "x y"] {
            let path = directory("/distlock", text).expect("short");
            assert_eq!(path.matches('/').count(), 2, "{path}");
            assert!(path.is_ascii());
            let node = path.rsplit('/').next().expect("a node");
            assert_eq!(percent_decoded(node).as_deref(), Some(text));
        }
        assert_eq!(directory("", &"é".repeat(4000)), None);
    }

    /// Formats a number like Java's `String.format("%010d", …)`.
    #[test]
    fn fd11_numbers_that_wrapped_are_read_and_in_order() {
        for (number_is, text) in [
            (0, "0000000000"),
            (i32::MAX, "2147483647"),
            (i32::MIN, "-2147483648"),
            (-5, "-000000005"),
        ] {
            assert_eq!(number(number_is), text);
            let node = format!("q-a.1.5s-{text}");
            assert_eq!(number_of(&format!("/distlock/k/{node}")), Some(number_is), "{node}");
            let children = LockChildren::of(vec![node.clone()]);
            let waiter =
                WaiterNode { node, token: "a.1.5s".into(), number: number_is, reads: false };
            assert_eq!(children.queue, [waiter]);
            assert_eq!(number_at(ticket(number_is)), Some(number_is));
        }
        assert_eq!(number_at(0), None);
        assert!(ticket(i32::MIN) > ticket(i32::MAX) && ticket(0) == 1);
        for come in [[i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1], [-2, -1, 0, 1], [1, 2, 3, 4]]
        {
            // The order of the server's list does not matter.
            for turn in 0..come.len() {
                let mut listed = come.map(|n| format!("q-t{}-{}", n.cast_unsigned(), number(n)));
                listed.rotate_left(turn);
                listed.swap(0, 2);
                let children = LockChildren::of(listed.to_vec());
                let order: Vec<_> = children.queue.iter().map(|waiter| waiter.number).collect();
                assert_eq!(order, come, "{turn}");
            }
        }
        let odd = ["q-x", "q--", "q-a-", "q-a--", "q-a-99999999999", "q-a--2147483649", "q-"];
        assert!(LockChildren::of(odd.map(str::to_owned).to_vec()).queue.is_empty());
    }

    #[test]
    fn reads_holders_and_the_queue_in_order() {
        let names =
            ["q-b.1.5s-0000000012", "x-a.1.5s", "r-c.1.5sr-0000000003", "lost+found", "q-x"];
        let children = LockChildren::of(names.map(str::to_owned).to_vec());
        assert!(children.holds("a.1.5s") && !children.fits(9));
        assert_eq!((children.rank("c.1.5sr"), children.rank("b.1.5s")), (Some(0), Some(1)));
        assert_eq!((children.behind(0), children.behind(1)), (1, 0));
        let readers = LockChildren::of(["s-a", "s-b"].map(str::to_owned).to_vec());
        assert!(readers.fits(3) && !readers.fits(2) && readers.fits(u32::MAX) && !readers.fits(1));
    }
}
