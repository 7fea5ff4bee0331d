//! Which tokens are in front, and which hold a lock: the order of its keys.
//!
//! A key stands where it came to be, by its revision, and that alone decides: those in front that fit
//! together hold the lock, and nothing is written when a key's turn comes. So what is let in has to stay let
//! in whatever happens behind it. It does: keys are only added at the end, or, those that take an earlier
//! place again, behind all that are let in ([`Seat::again`]).

use crate::keys::Prefix;
use crate::proto::KeyValue;

/// Holds a lock with any number of others.
pub(crate) const ANY: u32 = u32::MAX;

/// A key of a lock: one token that holds it, or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) token: String,
    pub(crate) seat: Seat,
    pub(crate) created: i64,
    pub(crate) lease: i64,
}

/// Where a token stands, and how many may hold the lock when it is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) most: u32,
    /// The revision in which it came, or in which one came whose place it has.
    pub(crate) ticket: i64,
    /// Which one of those with this ticket it is: the revision again.
    pub(crate) tie: i64,
}

impl Seat {
    /// As it is stored by a key that came to be in `created`. What is not ours keeps all others out.
    fn read(value: &[u8], created: i64) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let mut words = text.split(' ');
        let most = match words.next() {
            Some("r") => ANY,
            Some(number) => number.parse().unwrap_or(1),
            None => 1,
        };
        // No key stands in front of those that came before it, unless it stood there itself: the store may
        // have lost its data since, and its revisions begin anew.
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (ticket, tie): (Option<i64>, Option<i64>) = (number(), number());
        let ticket = ticket.map_or(created, |ticket| ticket.min(created));
        let tie = tie.map_or(created, |tie| tie.min(created));
        Self { most, ticket, tie }
    }

    /// What is stored for a token that comes at the end.
    pub(crate) fn last(most: u32) -> Vec<u8> {
        if most == ANY { b"r".to_vec() } else { most.to_string().into_bytes() }
    }

    /// What is stored for a token that takes the place of another one in the same moment.
    pub(crate) fn instead(most: u32, of: Self) -> Vec<u8> {
        let mut value = Self::last(most);
        value.extend(format!(" {} {}", of.ticket, of.tie).into_bytes());
        value
    }

    /// What is stored for a token that had this ticket before, where others wait: behind all that are let in.
    /// `None` if its place is at the end.
    pub(crate) fn again(most: u32, ticket: i64, line: &[Entry]) -> Option<Vec<u8>> {
        let let_in = let_in(line);
        line.get(let_in)?;
        let in_front = line[..let_in].last().map_or(0, |entry| entry.seat.ticket);
        let mut value = Self::last(most);
        value.extend(format!(" {}", ticket.max(in_front)).into_bytes());
        Some(value)
    }

    pub(crate) fn reads(&self) -> bool {
        self.most == ANY
    }
}

/// Whether a key belongs to a reader, by its value.
pub(crate) fn is_reader(kv: &KeyValue) -> bool {
    Seat::read(&kv.value, kv.create_revision).reads()
}

/// The keys of a lock in their order.
pub(crate) fn line(prefix: &Prefix, keys: &[KeyValue]) -> Vec<Entry> {
    let entry = |kv: &KeyValue| Entry {
        token: prefix.token(&kv.key),
        seat: Seat::read(&kv.value, kv.create_revision),
        created: kv.create_revision,
        lease: kv.lease,
    };
    let mut line: Vec<_> = keys.iter().map(entry).collect();
    line.sort_by(|a, b| {
        let place = |entry: &Entry| (entry.seat.ticket, entry.seat.tie, entry.created);
        place(a).cmp(&place(b)).then_with(|| a.token.cmp(&b.token))
    });
    line
}

/// How many of a line hold the lock.
pub(crate) fn let_in(line: &[Entry]) -> usize {
    let mut alone = false;
    for (n, entry) in line.iter().enumerate() {
        if alone || n >= entry.seat.most as usize {
            return n;
        }
        alone = entry.seat.most == 1;
    }
    line.len()
}

/// What a waiter has to see before it is worth looking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// This one of the line leaves.
    Entry(usize),
    /// So many of the line leave, no matter which.
    Any(usize),
}

/// What the waiter at this place of a line waits for: mostly one other key, so that a key that leaves wakes
/// one waiter and not all.
pub(crate) fn front(line: &[Entry], at: usize) -> Front {
    let most = line[at].seat.most as usize;
    if most == 1 {
        return Front::Entry(at - 1);
    }
    // Not before the last one in front has left that is alone; those behind it are beside each other.
    match line[..at].iter().rposition(|entry| entry.seat.most == 1) {
        Some(alone) => Front::Entry(alone),
        None => Front::Any((at + 1).saturating_sub(most).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> Prefix {
        Prefix::of("p:lock:{k}").expect("a name")
    }

    fn key(token: &str, value: &str, created: i64) -> KeyValue {
        let (key, value) = (prefix().key(token), value.as_bytes().to_vec());
        KeyValue { key, value, create_revision: created, mod_revision: created, lease: 7 }
    }

    fn of(keys: &[(&str, &str, i64)]) -> Vec<Entry> {
        let keys: Vec<_> = keys.iter().map(|(token, value, at)| key(token, value, *at)).collect();
        line(&prefix(), &keys)
    }

    fn tokens(line: &[Entry]) -> Vec<&str> {
        line.iter().map(|entry| &*entry.token).collect()
    }

    #[test]
    fn who_comes_first_is_in_front() {
        let line = of(&[("a", "1", 9), ("b", "1", 4), ("c", "1", 6)]);
        assert_eq!(tokens(&line), ["b", "c", "a"]);
        assert_eq!(let_in(&line), 1);
        assert_eq!((front(&line, 1), front(&line, 2)), (Front::Entry(0), Front::Entry(1)));
    }

    #[test]
    fn readers_are_together_and_a_writer_alone() {
        let line = of(&[("a", "r", 1), ("b", "r", 2), ("w", "1", 3), ("c", "r", 4), ("d", "r", 5)]);
        assert_eq!(let_in(&line), 2);
        assert_eq!(front(&line, 2), Front::Entry(1));
        assert_eq!((front(&line, 3), front(&line, 4)), (Front::Entry(2), Front::Entry(2)));
        assert_eq!(let_in(&line[2..]), 1);
        assert_eq!(let_in(&line[3..]), 2);
    }

    #[test]
    fn each_is_counted_by_its_own_limit() {
        let line = of(&[("a", "3", 1), ("b", "2", 2), ("c", "2", 3), ("d", "3", 4), ("e", "3", 5)]);
        assert_eq!(let_in(&line), 2);
        assert_eq!(front(&line, 2), Front::Any(1));
        assert_eq!((front(&line, 3), front(&line, 4)), (Front::Any(1), Front::Any(2)));
        // What is not ours is alone.
        assert_eq!(let_in(&of(&[("a", "locked", 1), ("b", "r", 2)])), 1);
    }

    #[test]
    fn an_earlier_place_is_behind_all_that_are_let_in() {
        let before = [("a", "r", 20), ("b", "r", 22), ("w", "1", 24), ("x", "1", 26)];
        let line = of(&before);
        for (ticket, place) in [(5, 2), (23, 2), (25, 3), (30, 4)] {
            let value = Seat::again(1, ticket, &line).expect("others wait");
            let value = String::from_utf8(value).expect("text");
            let mut after = before.to_vec();
            after.push(("back", &value, 31));
            let after = of(&after);
            assert_eq!(after[place].token, "back", "{ticket}: {value}");
            assert_eq!(let_in(&after), 2);
        }
        assert_eq!(Seat::again(1, 5, &of(&before[..2])), None, "no waiter");
    }

    #[test]
    fn who_is_instead_of_another_has_its_place() {
        let writer = of(&[("w", "1", 20), ("back", "1 20", 23), ("r", "r", 25)]);
        assert_eq!(tokens(&writer), ["w", "back", "r"]);
        let value = String::from_utf8(Seat::instead(ANY, writer[0].seat)).expect("text");
        let line = of(&[("new", &value, 27), ("back", "1 20", 23), ("r", "r", 25)]);
        assert_eq!(tokens(&line), ["new", "back", "r"]);
        assert_eq!(let_in(&line), 1);
    }

    /// Revisions begin anew when all data is lost.
    #[test]
    fn a_ticket_of_lost_data_is_at_the_end() {
        let line = of(&[("old", "1 5000", 3), ("new", "1", 4)]);
        assert_eq!(tokens(&line), ["old", "new"]);
    }
}
