//! The record of a test: which bodies held which locks, and in which order they were polled.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::limit::Limit;
use distlock_core::name::LockName;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::history::{Ended, Held, History};
use crate::observe::LeaseEvent;
use crate::observe::probe::Probe;

/// The holds of all replicas.
pub(super) struct HoldRecord {
    start: Instant,
    state: Mutex<RecordState>,
    changed: Notify,
}

#[derive(Default)]
struct RecordState {
    /// Counts the sightings.
    seen: u64,
    spans: Vec<HoldSpan>,
}

/// One hold, and its place in the order of sightings.
struct HoldSpan {
    key: String,
    lease: usize,
    limit: Limit,
    held: Held,
    begun: u64,
    over: Option<u64>,
    /// The first and the last poll of its body; `None` without a body.
    polls: Option<(u64, u64)>,
}

impl HoldSpan {
    /// Returns the first and the last moment of work under the lock. A body counts while it was polled, a guard
    /// while it was held.
    fn bounds(&self) -> (u64, u64) {
        self.polls.unwrap_or((self.begun, self.over.unwrap_or(u64::MAX)))
    }
}

impl HoldRecord {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a replica holds the lock of that key.
    pub(super) fn is_held(&self, key: &str) -> bool {
        self.state().spans.iter().any(|span| span.key == key && span.over.is_none())
    }

    /// Resolves at the first sighting after the future was first polled.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn history(&self, key: &str) -> History {
        let state = self.state();
        let spans = state.spans.iter().filter(|span| span.key == key);
        History(spans.map(|span| span.held.clone()).collect())
    }

    /// Returns the largest number of holders of the lock at once.
    pub(super) fn most_together(&self, key: &str) -> usize {
        let state = self.state();
        let spans: Vec<_> = state.spans.iter().filter(|span| span.key == key).collect();
        spans.iter().map(|span| at(span.bounds().0, &spans).count()).max().unwrap_or(0)
    }

    /// Returns calls that had the lock at once, although one of them excludes the others.
    pub(super) fn too_many(&self, key: &str) -> Vec<Held> {
        let state = self.state();
        let spans: Vec<_> = state.spans.iter().filter(|span| span.key == key).collect();
        for span in &spans {
            let together: Vec<_> = at(span.bounds().0, &spans).collect();
            let permits = together.iter().filter_map(|span| span.limit.as_permits());
            let most = permits.clone().max().map_or(usize::MAX, |most| most.get() as usize);
            let are_alone = together.iter().any(|span| span.limit.is_alone());
            // Each call is let in by its own number of permits, and readers by none.
            if are_alone && together.len() > 1 || permits.count() > most {
                return together.into_iter().map(|span| span.held.clone()).collect();
            }
        }
        Vec::new()
    }

    fn see(
        &self,
        replica: &str,
        lock: &LockName,
        (lease, limit, fencing_token): (usize, Limit, u64),
        event: LeaseEvent,
    ) {
        let now = self.start.elapsed();
        {
            let mut state = self.state();
            state.seen += 1;
            let at = state.seen;
            let is_it = |span: &&mut HoldSpan| {
                span.lease == lease
                    && span.held.fencing_token == fencing_token
                    && span.held.replica == replica
            };
            // The last of them: the memory of a lease that is gone may be that of another one now.
            let span = state.spans.iter_mut().rev().find(is_it);
            let span = span.filter(|span| event != LeaseEvent::Held || span.over.is_none());
            match (span, event) {
                (None, LeaseEvent::Held) => state.spans.push(HoldSpan {
                    key: lock.key().to_owned(),
                    lease,
                    limit,
                    held: Held {
                        replica: replica.to_owned(),
                        name: lock.name().to_owned(),
                        fencing_token,
                        from: now,
                        until: None,
                        ended: None,
                    },
                    begun: at,
                    over: None,
                    polls: None,
                }),
                (Some(span), LeaseEvent::Polled) => {
                    span.polls = Some((span.polls.map_or(at, |(first, _)| first), at));
                }
                (Some(span), LeaseEvent::Released | LeaseEvent::Lost) if span.over.is_none() => {
                    let was_lost = event == LeaseEvent::Lost;
                    let ended = if was_lost { Ended::Lost } else { Ended::Released };
                    span.over = Some(at);
                    (span.held.until, span.held.ended) = (Some(now), Some(ended));
                }
                _ => {}
            }
        }
        self.changed.notify_waiters();
    }
}

/// Returns the holders at that time.
fn at<'a>(then: u64, spans: &'a [&'a HoldSpan]) -> impl Iterator<Item = &'a HoldSpan> {
    let had = move |span: &&HoldSpan| (span.bounds().0..=span.bounds().1).contains(&then);
    spans.iter().copied().filter(had)
}

/// Adds the holds of one replica to the record.
pub(super) struct HoldRecorder {
    pub(super) replica: String,
    pub(super) record: Arc<HoldRecord>,
}

impl Probe for HoldRecorder {
    fn see(
        &self,
        lock: &LockName,
        lease: usize,
        limit: Limit,
        fencing_token: u64,
        event: LeaseEvent,
    ) {
        self.record.see(&self.replica, lock, (lease, limit, fencing_token), event);
    }
}

impl fmt::Debug for HoldRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldRecorder").field("replica", &self.replica).finish_non_exhaustive()
    }
}
