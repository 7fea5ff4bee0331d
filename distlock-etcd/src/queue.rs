//! The queue of a lock: the order of its keys, and which of them hold the lock.
//!
//! Each token has one key. Keys are ordered by the revision that created them, and that order alone decides: the
//! first keys that are compatible with each other hold the lock. Nothing is written when a key's turn comes. So a key
//! that holds the lock must keep it, whatever is added later. It does: a new key goes to the end of the queue, and a
//! key that takes an earlier place again goes after all holders ([`QueuePosition::again`]).

use distlock_core::store::Limit;

use crate::keys::LockPrefix;
use crate::proto::{KeyValue, RequestOp};

/// One token in the queue of a lock, as a holder or as a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    pub(crate) token: String,
    pub(crate) position: QueuePosition,
    pub(crate) created: i64,
    pub(crate) lease: i64,
}

/// The place of a token in the queue, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    pub(crate) limit: Limit,
    /// The revision that created its key, or the key whose place it took.
    pub(crate) ticket: i64,
    /// The revision that orders tokens with the same ticket.
    pub(crate) tie_break: i64,
}

impl QueuePosition {
    /// Parses the value of a key that was created in revision `created`. A key of another program is treated as
    /// exclusive.
    fn parse(value: &[u8], created: i64) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let mut words = text.split(' ');
        let limit = match words.next() {
            Some("r") => Some(Limit::READ),
            Some(number) => number.parse().ok().and_then(Limit::permits),
            None => None,
        };
        // A ticket above the key's own revision is from before etcd lost its data. Such a key must not come after
        // younger ones.
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (ticket, tie_break): (Option<i64>, Option<i64>) = (number(), number());
        let ticket = ticket.map_or(created, |ticket| ticket.min(created));
        let tie_break = tie_break.map_or(created, |tie_break| tie_break.min(created));
        Self { limit: limit.unwrap_or(Limit::ALONE), ticket, tie_break }
    }

    /// Returns the value to store for a token at the end of the queue.
    pub(crate) fn last(limit: Limit) -> Vec<u8> {
        if limit.is_read() { b"r".to_vec() } else { limit.most().to_string().into_bytes() }
    }

    /// Returns the value to store for a token that replaces another one in the same transaction.
    pub(crate) fn instead(limit: Limit, of: Self) -> Vec<u8> {
        let mut value = Self::last(limit);
        value.extend(format!(" {} {}", of.ticket, of.tie_break).into_bytes());
        value
    }

    /// Returns the value to store for a token that takes its earlier place again, but after all holders. `None` if its
    /// place is at the end, because nobody waits.
    pub(crate) fn again(limit: Limit, ticket: i64, queue: &[QueueEntry]) -> Option<Vec<u8>> {
        let holders = holder_count(queue);
        queue.get(holders)?;
        let last_holder = queue[..holders].last().map_or(0, |entry| entry.position.ticket);
        let mut value = Self::last(limit);
        value.extend(format!(" {}", ticket.max(last_holder)).into_bytes());
        Some(value)
    }
}

/// Returns whether a key belongs to a reader.
pub(crate) fn is_reader(kv: &KeyValue) -> bool {
    QueuePosition::parse(&kv.value, kv.create_revision).limit.is_read()
}

/// Returns the operation that reads all keys of a lock.
pub(crate) fn read_queue(prefix: &LockPrefix) -> RequestOp {
    RequestOp::range(prefix.start().to_vec(), prefix.end())
}

/// Returns the queue that the keys of a lock form.
pub(crate) fn queue_of(prefix: &LockPrefix, keys: &[KeyValue]) -> Vec<QueueEntry> {
    let entry = |kv: &KeyValue| QueueEntry {
        token: prefix.token(&kv.key),
        position: QueuePosition::parse(&kv.value, kv.create_revision),
        created: kv.create_revision,
        lease: kv.lease,
    };
    let mut queue: Vec<_> = keys.iter().map(entry).collect();
    queue.sort_by(|a, b| {
        let place =
            |entry: &QueueEntry| (entry.position.ticket, entry.position.tie_break, entry.created);
        place(a).cmp(&place(b)).then_with(|| a.token.cmp(&b.token))
    });
    queue
}

/// Returns how many tokens of a queue hold the lock: they are its first ones.
pub(crate) fn holder_count(queue: &[QueueEntry]) -> usize {
    let mut is_exclusive = false;
    for (n, entry) in queue.iter().enumerate() {
        if is_exclusive || !entry.position.limit.fits(n) {
            return n;
        }
        is_exclusive = entry.position.limit.is_alone();
    }
    queue.len()
}

/// The keys that must leave before it is worthwhile for a waiter to look at the queue again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// This entry of the queue.
    Entry(usize),
    /// This many entries of the queue, no matter which.
    Any(usize),
}

/// Returns the keys that the waiter at this index waits for. It is one other key in most cases, so that a key that
/// leaves wakes one waiter and not all.
pub(crate) fn blocker(queue: &[QueueEntry], at: usize) -> Blocker {
    let limit = queue[at].position.limit;
    if limit.is_alone() {
        return Blocker::Entry(at - 1);
    }
    // The last exclusive token before this one has to leave. The tokens after it share the lock.
    match queue[..at].iter().rposition(|entry| entry.position.limit.is_alone()) {
        Some(exclusive) => Blocker::Entry(exclusive),
        None => Blocker::Any(limit.too_many(at).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> LockPrefix {
        LockPrefix::of("p:lock:{k}").expect("a name")
    }

    fn key(token: &str, value: &str, created: i64) -> KeyValue {
        let (key, value) = (prefix().key(token), value.as_bytes().to_vec());
        KeyValue { key, value, create_revision: created, mod_revision: created, lease: 7 }
    }

    fn of(keys: &[(&str, &str, i64)]) -> Vec<QueueEntry> {
        let keys: Vec<_> = keys.iter().map(|(token, value, at)| key(token, value, *at)).collect();
        queue_of(&prefix(), &keys)
    }

    fn tokens(queue: &[QueueEntry]) -> Vec<&str> {
        queue.iter().map(|entry| &*entry.token).collect()
    }

    #[test]
    fn the_oldest_key_is_first() {
        let queue = of(&[("a", "1", 9), ("b", "1", 4), ("c", "1", 6)]);
        assert_eq!(tokens(&queue), ["b", "c", "a"]);
        assert_eq!(holder_count(&queue), 1);
        assert_eq!(
            (blocker(&queue, 1), blocker(&queue, 2)),
            (Blocker::Entry(0), Blocker::Entry(1))
        );
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let queue =
            of(&[("a", "r", 1), ("b", "r", 2), ("w", "1", 3), ("c", "r", 4), ("d", "r", 5)]);
        assert_eq!(holder_count(&queue), 2);
        assert_eq!(blocker(&queue, 2), Blocker::Entry(1));
        assert_eq!(
            (blocker(&queue, 3), blocker(&queue, 4)),
            (Blocker::Entry(2), Blocker::Entry(2))
        );
        assert_eq!(holder_count(&queue[2..]), 1);
        assert_eq!(holder_count(&queue[3..]), 2);
    }

    #[test]
    fn each_is_counted_by_its_own_limit() {
        let queue =
            of(&[("a", "3", 1), ("b", "2", 2), ("c", "2", 3), ("d", "3", 4), ("e", "3", 5)]);
        assert_eq!(holder_count(&queue), 2);
        assert_eq!(blocker(&queue, 2), Blocker::Any(1));
        assert_eq!((blocker(&queue, 3), blocker(&queue, 4)), (Blocker::Any(1), Blocker::Any(2)));
        // A key of another program is exclusive.
        assert_eq!(holder_count(&of(&[("a", "locked", 1), ("b", "r", 2)])), 1);
    }

    #[test]
    fn an_earlier_place_is_after_all_holders() {
        let before = [("a", "r", 20), ("b", "r", 22), ("w", "1", 24), ("x", "1", 26)];
        let queue = of(&before);
        for (ticket, place) in [(5, 2), (23, 2), (25, 3), (30, 4)] {
            let value = QueuePosition::again(Limit::ALONE, ticket, &queue).expect("others wait");
            let value = String::from_utf8(value).expect("text");
            let mut after = before.to_vec();
            after.push(("back", &value, 31));
            let after = of(&after);
            assert_eq!(after[place].token, "back", "{ticket}: {value}");
            assert_eq!(holder_count(&after), 2);
        }
        assert_eq!(QueuePosition::again(Limit::ALONE, 5, &of(&before[..2])), None, "no waiter");
    }

    #[test]
    fn a_replacement_has_the_same_place() {
        let writer = of(&[("w", "1", 20), ("back", "1 20", 23), ("r", "r", 25)]);
        assert_eq!(tokens(&writer), ["w", "back", "r"]);
        let value = String::from_utf8(QueuePosition::instead(Limit::READ, writer[0].position))
            .expect("text");
        let queue = of(&[("new", &value, 27), ("back", "1 20", 23), ("r", "r", 25)]);
        assert_eq!(tokens(&queue), ["new", "back", "r"]);
        assert_eq!(holder_count(&queue), 1);
    }

    /// Revisions start again when etcd has lost its data.
    #[test]
    fn a_ticket_of_lost_data_is_at_the_end() {
        let queue = of(&[("old", "1 5000", 3), ("new", "1", 4)]);
        assert_eq!(tokens(&queue), ["old", "new"]);
    }
}
