//! Which bodies held which locks, and in which order they were polled.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::Locks;
use crate::key::LockKey;
use crate::limit::Limit;
use crate::name::LockName;
use crate::observe::LeaseEvent;
use crate::observe::probe::Probe;

impl Locks {
    /// The holders of the lock so far, in order. Calls that were refused, and
    /// [`held_elsewhere`](Self::held_elsewhere), are not in it.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::{Ended, Locks};
    ///
    /// let locks = Locks::new();
    /// locks.replica("a").manager().lock("k").name("report").run(async {}).await?;
    /// let history = locks.history("k");
    /// assert_eq!((history.names(), history.replicas()), (vec!["report"], vec!["a"]));
    /// assert_eq!(history[0].ended, Some(Ended::Released));
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn history(&self, key: impl Into<LockKey>) -> History {
        self.shared.record.history(key.into().as_str())
    }

    /// From the beginning of the test until now, no two calls that exclude each other were in a body under
    /// this lock, or had a guard of it, at once: none beside one that is to be alone, and no more than there
    /// are permits. Readers may be together.
    ///
    /// A body counts from its first poll to its last, also if its lease was lost in between; a guard while
    /// its lease lasts. Whether readers were in fact together, [`most_together`](Self::most_together)
    /// says.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let lock = |replica| locks.replica(replica).manager().lock("k").wait(Duration::from_secs(60));
    /// let body = || tokio::time::sleep(Duration::from_secs(7));
    /// let (one, other) = tokio::join!(lock("a").run(body()), lock("b").run(body()));
    /// assert!(one.is_ok() && other.is_ok());
    /// locks.assert_never_together("k");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If some were, or if the lock was never held, so that the test shows nothing.
    #[track_caller]
    pub fn assert_never_together(&self, key: impl Into<LockKey>) {
        let key = key.into();
        let record = &self.shared.record;
        let never = record.history(key.as_str()).is_empty();
        assert!(!never, "assert_never_together: nobody has ever held {:?}", key.as_str());
        let together = record.too_many(key.as_str());
        if !together.is_empty() {
            let (count, key) = (together.len(), key.as_str());
            let together: String = together.iter().map(|held| format!("\n  {held:?}")).collect();
            panic!("{count} had {key:?} at once, one of which excludes the others:{together}");
        }
    }

    /// How many were in a body under this lock, or had a guard of it, at once at most.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let read = |replica: &str| locks.replica(replica).manager().lock("k").mode(LockMode::Read);
    /// let both = (read("a").acquire().await?, read("b").acquire().await?);
    /// drop(both);
    /// locks.assert_never_together("k");
    /// assert_eq!(locks.most_together("k"), 2);
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn most_together(&self, key: impl Into<LockKey>) -> usize {
        self.shared.record.most_together(key.into().as_str())
    }
}

/// How a lock came out of its holder's hands; see [`Held::ended`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::testing::{Ended, Locks};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let guard = locks.manager().lock("order:7").acquire().await?;
/// locks.lose("order:7");
/// assert!(!guard.is_held());
/// assert_eq!(locks.history("order:7")[0].ended, Some(Ended::Lost));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was freed, or handed on, by its holder.
    Released,
    /// Its lease was lost, or its replica was killed.
    Lost,
}

/// One time that a lock was held; see [`Locks::history`](super::Locks::history).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::testing::{Ended, Locks};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let guard = locks.manager().lock("order:7").acquire().await?;
/// assert_eq!(locks.history("order:7")[0].until, None);
/// guard.release().await?;
/// assert_eq!(locks.history("order:7")[0].ended, Some(Ended::Released));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The replica that held it.
    pub replica: String,
    /// The lock's name: `module::function` of an annotated function, what `name` says, or the file in
    /// which the lock was asked for.
    pub name: String,
    /// Of an exclusive lock larger than that of every earlier holder. Readers that share a lease have the
    /// same.
    pub fencing_token: u64,
    /// When it was taken, since the [`Locks`](super::Locks) were made.
    pub from: Duration,
    /// When it ended; `None` while it is held.
    pub until: Option<Duration>,
    /// How it ended; `None` while it is held.
    pub ended: Option<Ended>,
}

/// The holders of one lock, in order; see [`Locks::history`](super::Locks::history). A slice of [`Held`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::testing::Locks;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// for (replica, work) in [("a", "import"), ("b", "export")] {
///     let lock = locks.replica(replica).manager().lock("books").name(work);
///     lock.run(tokio::time::sleep(Duration::from_secs(60))).await?;
/// }
/// let history = locks.history("books");
/// assert_eq!(history.names(), ["import", "export"]);
/// assert_eq!(history.replicas(), ["a", "b"]);
/// // Handed over without a pause, and with a larger token.
/// assert_eq!(history[0].until, Some(history[1].from));
/// assert!(history[0].fencing_token < history[1].fencing_token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History(pub(super) Vec<Held>);

impl History {
    /// The names of the locks, without their modules: of annotated functions, the functions' names. One
    /// for each time that the lock was held, in order.
    pub fn names(&self) -> Vec<&str> {
        let last = |held: &'_ Held| held.name.rfind("::").map_or(0, |at| at + 2);
        self.0.iter().map(|held| &held.name[last(held)..]).collect()
    }

    /// The replicas that held it, one for each time, in order.
    pub fn replicas(&self) -> Vec<&str> {
        self.0.iter().map(|held| held.replica.as_str()).collect()
    }
}

impl std::ops::Deref for History {
    type Target = [Held];

    fn deref(&self) -> &[Held] {
        &self.0
    }
}

/// A record of all replicas.
pub(super) struct Record {
    start: Instant,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Counts what is seen.
    seen: u64,
    spans: Vec<Span>,
}

struct Span {
    key: String,
    lease: usize,
    limit: Limit,
    held: Held,
    begun: u64,
    over: Option<u64>,
    /// Its body's first and last poll; `None` without a body.
    polls: Option<(u64, u64)>,
}

impl Span {
    /// From when to when something was done under it. A body counts while it was polled, a guard
    /// while it was held.
    fn bounds(&self) -> (u64, u64) {
        self.polls.unwrap_or((self.begun, self.over.unwrap_or(u64::MAX)))
    }
}

impl Record {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a replica holds the lock of that key.
    pub(super) fn is_held(&self, key: &str) -> bool {
        self.state().spans.iter().any(|span| span.key == key && span.over.is_none())
    }

    /// Resolves when something is seen after this was first polled.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub(super) fn history(&self, key: &str) -> History {
        let state = self.state();
        let spans = state.spans.iter().filter(|span| span.key == key);
        History(spans.map(|span| span.held.clone()).collect())
    }

    /// How many had the lock of that key at once at most.
    pub(super) fn most_together(&self, key: &str) -> usize {
        let state = self.state();
        let spans: Vec<_> = state.spans.iter().filter(|span| span.key == key).collect();
        spans.iter().map(|span| at(span.bounds().0, &spans).count()).max().unwrap_or(0)
    }

    /// Calls that had the lock of that key at once, although one of them excludes the others.
    pub(super) fn too_many(&self, key: &str) -> Vec<Held> {
        let state = self.state();
        let spans: Vec<_> = state.spans.iter().filter(|span| span.key == key).collect();
        for span in &spans {
            let together: Vec<_> = at(span.bounds().0, &spans).collect();
            let permits = together.iter().filter_map(|span| span.limit.as_permits());
            let most = permits.clone().max().map_or(usize::MAX, |most| most.get() as usize);
            let are_alone = together.iter().any(|span| span.limit.is_alone());
            // Each is let in by its own number, and readers by none.
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
            let is_it = |span: &&mut Span| {
                span.lease == lease
                    && span.held.fencing_token == fencing_token
                    && span.held.replica == replica
            };
            // The last of them: a lease that is gone leaves its place to another.
            let span = state.spans.iter_mut().rev().find(is_it);
            let span = span.filter(|span| event != LeaseEvent::Held || span.over.is_none());
            match (span, event) {
                (None, LeaseEvent::Held) => state.spans.push(Span {
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

/// The holders at that time.
fn at<'a>(then: u64, spans: &'a [&'a Span]) -> impl Iterator<Item = &'a Span> {
    let had = move |span: &&Span| (span.bounds().0..=span.bounds().1).contains(&then);
    spans.iter().copied().filter(had)
}

/// What one replica does goes into the record.
pub(super) struct Recorder {
    pub(super) replica: String,
    pub(super) record: Arc<Record>,
}

impl Probe for Recorder {
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

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("replica", &self.replica).finish_non_exhaustive()
    }
}
