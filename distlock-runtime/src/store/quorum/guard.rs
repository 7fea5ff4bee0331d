//! The restart guard: a node that has forgotten its locks must not help to give them away again.
//!
//! A node counts once it has been up for longer than any lease of this manager: until then it may have
//! granted a lock, forgotten it in the restart, and grant it to another process. A restart breaks every
//! connection, so each new one asks which server it is and how long it has been up. No key of ours
//! and no clock of ours can say it: with an append-only file that is written once a second, a key survives
//! where the last second of locks does not.

// Public for the model, which is built with the feature `model`.
#![allow(unreachable_pub)]

use std::time::Duration;

use crate::clock::Moment;

/// Servers count their uptime in whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// Since when a node counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[allow(unreachable_pub)] // Public for the model.
pub struct RestartGuard {
    seen: Option<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    /// Another one after every start of the server.
    run_id: String,
    counts_from: Moment,
}

impl RestartGuard {
    /// A server answers on a new connection, which has been `up` for that long.
    pub fn greeted(&mut self, run_id: &str, up: Duration, guard: Duration, now: Moment) {
        if self.seen.as_ref().is_some_and(|seen| seen.run_id == run_id) {
            return;
        }
        let wanted = if guard.is_zero() { guard } else { guard.saturating_add(ROUNDING) };
        let counts_from = now.after(wanted.saturating_sub(up));
        self.seen = Some(Seen { run_id: run_id.to_owned(), counts_from });
    }

    /// Whether an answer to what was sent at `sent` counts.
    pub fn counts(&self, sent: Moment) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.counts_from <= sent)
    }

    /// How long it takes until it counts; `None` before the first greeting.
    pub(crate) fn wait(&self, now: Moment) -> Option<Duration> {
        self.seen.as_ref().map(|seen| seen.counts_from.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_counts_once_it_has_outlived_every_lease() {
        let at = |secs| Moment::from_nanos(0).after(Duration::from_secs(secs));
        let secs = Duration::from_secs;
        let mut node = RestartGuard::default();
        assert!(!node.counts(at(1000)));
        node.greeted("a", secs(500), secs(30), at(1000));
        assert!(node.counts(at(1000)));
        // The same server on a new connection.
        node.greeted("a", secs(0), secs(30), at(1001));
        assert!(node.counts(at(1001)));
        // It has restarted ten seconds ago.
        node.greeted("b", secs(10), secs(30), at(1010));
        assert!(!node.counts(at(1030)));
        assert_eq!(node.wait(at(1011)), Some(secs(20)));
        assert!(node.counts(at(1031)));
        // Switched off.
        node.greeted("c", secs(0), secs(0), at(1040));
        assert!(node.counts(at(1040)));
    }
}
