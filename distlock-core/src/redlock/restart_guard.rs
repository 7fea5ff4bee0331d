//! The restart guard: a server that has forgotten its locks must not help to grant them again.
//!
//! After a restart a server may have forgotten a lock that it had granted, and may grant it to another process. So a server
//! counts only once a process has watched it for longer than any lease lasts. The process measures that by its own clock,
//! from the first answer of this run of the server on. The server's uptime is no measure, because it is computed from the
//! wall clock, which may be stepped forward after a boot. The server's data do not tell the age of its run, either: with an
//! append-only file that is written once a second, the data survive, but the locks of the last second do not.
//!
//! A process that has watched a server for long enough leaves a note there, which names the run. So only the first process
//! waits.

use std::time::Duration;

use crate::clock::Moment;

/// Returns how long a server is watched before it counts: the guard, and the time for which a process may rely on the list
/// of servers without reading it again (see [`relies_for`]).
pub fn watch_for(guard: Duration) -> Duration {
    guard.saturating_add(relies_for(guard))
}

/// Returns how long a process may rely on the list of servers that it has read from a server. After a server was replaced,
/// a process that has not noticed acquires locks for at most this long, and these locks last for at most a guard.
pub fn relies_for(guard: Duration) -> Duration {
    guard / 10
}

/// The moment from which on one server counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RestartGuard {
    seen: Option<Seen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    /// Changes with every start of the server, and whenever it has lost its data.
    run: String,
    counts_from: Moment,
}

impl RestartGuard {
    /// Notes that the server has answered in this run. `watched` says whether some process has watched the run for long
    /// enough.
    pub fn greeted(&mut self, run: &str, watched: bool, guard: Duration, now: Moment) {
        let counts_from = if watched { now } else { now.after(watch_for(guard)) };
        match &mut self.seen {
            Some(seen) if seen.run == run => seen.counts_from = seen.counts_from.min(counts_from),
            seen => *seen = Some(Seen { run: run.to_owned(), counts_from }),
        }
    }

    /// Returns whether the answer to a command that was sent at `sent` counts.
    pub fn counts(&self, sent: Moment) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.counts_from <= sent)
    }

    /// Returns whether this run counts at `now`.
    pub fn has_watched(&self, run: &str, now: Moment) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.run == run) && self.counts(now)
    }

    /// Returns how long it takes until this run counts; `None` if another run was seen since.
    pub fn wait_for(&self, run: &str, now: Moment) -> Option<Duration> {
        let seen = self.seen.as_ref().filter(|seen| seen.run == run)?;
        Some(seen.counts_from.since(now))
    }

    /// Returns how long it takes until the server counts; `None` before its first answer.
    pub fn wait(&self, now: Moment) -> Option<Duration> {
        self.seen.as_ref().map(|seen| seen.counts_from.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_counts_once_it_was_watched_for_longer_than_any_lease() {
        let at = |secs| Moment::from_nanos(0).after(Duration::from_secs(secs));
        let secs = Duration::from_secs;
        let mut node = RestartGuard::default();
        assert!(!node.counts(at(1000)));
        // The server may have been up for years, but nobody has watched it.
        node.greeted("a", false, secs(30), at(1000));
        assert!(!node.counts(at(1032)));
        assert_eq!(node.wait(at(1011)), Some(secs(22)));
        // This is the same run on another connection.
        node.greeted("a", false, secs(30), at(1020));
        assert!(node.counts(at(1033)) && node.has_watched("a", at(1033)));
        assert!(!node.has_watched("b", at(1033)));
        // The server has restarted.
        node.greeted("b", false, secs(30), at(1040));
        assert!(!node.counts(at(1072)));
        // Another process has watched it for longer.
        node.greeted("b", true, secs(30), at(1050));
        assert!(node.counts(at(1050)) && !node.counts(at(1049)));
        // Switched off.
        node.greeted("c", false, secs(0), at(1060));
        assert!(node.counts(at(1060)));
    }
}
