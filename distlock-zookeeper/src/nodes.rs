//! What nodes are called.
//!
//! ```text
//! /chroot/distlock                      where all locks are
//!   distlock:lock:{order:7}             one lock, while it is used
//!     x-<token>                         has it alone
//!     s-<token>                         has it with others
//!     q-<token>-0000000003              waits
//!     r-<token>-0000000004              waits to read, with others
//!   distlock:process:<number>           one process, while it has a session
//! ```

use std::fmt::Write as _;

/// The longest name there may be, encoded: many of them have to fit into an answer.
const LONGEST_NAME: usize = 8000;

/// The node of one lock, in the root of all locks; `None` if the name is too long.
pub(crate) fn directory(root: &str, name: &str) -> Option<String> {
    let mut path = format!("{root}/");
    for byte in name.bytes() {
        match byte {
            // Of the others some are forbidden, and some are hard to tell from each other.
            b'/' | b'%' => drop(write!(path, "%{byte:02X}")),
            byte if byte.is_ascii_graphic() || byte == b' ' => path.push(char::from(byte)),
            byte => drop(write!(path, "%{byte:02X}")),
        }
    }
    (path.len() - root.len() <= LONGEST_NAME).then_some(path)
}

/// The name of a lock whose node is called so.
pub(crate) fn name(node: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(node.len()), node.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = behind else { return None };
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// The node of a holder.
pub(crate) fn holder(directory: &str, token: &str, alone: bool) -> String {
    format!("{directory}/{}-{token}", if alone { 'x' } else { 's' })
}

/// What the node of a waiter is called up to its number.
pub(crate) fn waiter(directory: &str, token: &str, reads: bool) -> String {
    format!("{directory}/{}-{token}-", if reads { 'r' } else { 'q' })
}

/// The number in the name of a waiter's node, as ZooKeeper writes it: ten digits, or a minus and more digits
/// once the directory's counter has wrapped.
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

/// Returns the place of a waiter for callers: never 0, and still growing when the number wraps.
pub(crate) fn ticket(number: i32) -> u64 {
    u64::from(number.cast_unsigned()) + 1
}

/// Returns the number of a place; `None` for a place at the end.
pub(crate) fn number_at(ticket: u64) -> Option<i32> {
    Some(u32::try_from(ticket.checked_sub(1)?).ok()?.cast_signed())
}

/// The holders and waiters of a lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LockChildren {
    pub(crate) holders: Vec<HolderNode>,
    /// In order.
    pub(crate) queue: Vec<WaiterNode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderNode {
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) alone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaiterNode {
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) number: i32,
    pub(crate) reads: bool,
}

impl LockChildren {
    pub(crate) fn of(children: Vec<String>) -> Self {
        let mut standing = Self::default();
        for node in children {
            match node.split_once('-') {
                Some((kind @ ("x" | "s"), token)) => {
                    let (alone, token) = (kind == "x", token.to_owned());
                    standing.holders.push(HolderNode { node, token, alone });
                }
                Some((kind @ ("q" | "r"), rest)) => {
                    let Some((token, number)) = token_and_number(rest) else { continue };
                    let (reads, token) = (kind == "r", token.to_owned());
                    standing.queue.push(WaiterNode { node, token, number, reads });
                }
                // None of ours.
                _ => {}
            }
        }
        // The counter wraps, so 2147483647 comes before -2147483648. Two numbers of one queue are never half
        // the range apart.
        let any = standing.queue.first().map_or(0, |waiter| waiter.number);
        standing.queue.sort_by(|a, b| {
            let place = |waiter: &WaiterNode| waiter.number.wrapping_sub(any);
            (place(a), &a.token).cmp(&(place(b), &b.token))
        });
        standing
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether one more fits beside the holders, of which there may then be `most`.
    pub(crate) fn fits(&self, most: u32) -> bool {
        let holders = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        !self.holders.iter().any(|holder| holder.alone) && holders < most
    }

    /// Where a token stands in the queue.
    pub(crate) fn rank(&self, token: &str) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.token == token)
    }

    pub(crate) fn holds(&self, token: &str) -> bool {
        self.holders.iter().any(|holder| holder.token == token)
    }

    /// How many others wait behind a place: not readers behind a reader, as they come in beside it.
    pub(crate) fn behind(&self, rank: usize) -> usize {
        let reads = self.queue[rank].reads;
        self.queue[rank + 1..].iter().filter(|other| !(reads && other.reads)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_node_of_its_own() {
        for text in ["distlock:lock:{order:7}", "a/b%c", "a%2Fb", "ключ\u{1}", "x y"] {
            let path = directory("/distlock", text).expect("short");
            assert_eq!(path.matches('/').count(), 2, "{path}");
            assert!(path.is_ascii());
            assert_eq!(name(path.rsplit('/').next().expect("a node")).as_deref(), Some(text));
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
            let standing = LockChildren::of(vec![node.clone()]);
            let waiter =
                WaiterNode { node, token: "a.1.5s".into(), number: number_is, reads: false };
            assert_eq!(standing.queue, [waiter]);
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
                let standing = LockChildren::of(listed.to_vec());
                let order: Vec<_> = standing.queue.iter().map(|waiter| waiter.number).collect();
                assert_eq!(order, come, "{turn}");
            }
        }
        let odd = ["q-x", "q--", "q-a-", "q-a--", "q-a-99999999999", "q-a--2147483649", "q-"];
        assert!(LockChildren::of(odd.map(str::to_owned).to_vec()).queue.is_empty());
    }

    #[test]
    fn who_stands_where() {
        let children =
            ["q-b.1.5s-0000000012", "x-a.1.5s", "r-c.1.5sr-0000000003", "lost+found", "q-x"];
        let standing = LockChildren::of(children.map(str::to_owned).to_vec());
        assert!(standing.holds("a.1.5s") && !standing.fits(9));
        assert_eq!((standing.rank("c.1.5sr"), standing.rank("b.1.5s")), (Some(0), Some(1)));
        assert_eq!((standing.behind(0), standing.behind(1)), (1, 0));
        let readers = LockChildren::of(["s-a", "s-b"].map(str::to_owned).to_vec());
        assert!(readers.fits(3) && !readers.fits(2) && readers.fits(u32::MAX) && !readers.fits(1));
    }
}
