//! Retries releases until they are confirmed, or until the lock, or a place in the queue, has expired by
//! itself. [`release`](super::release) says which releases those are.
//!
//! There may be thousands of them when a server is in trouble, and they must not add to its load then. So all
//! that go over one connection have one back-off: after each pause a few are tried, not always the same, and as
//! soon as one is confirmed the others follow.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use distlock_core::back_off::jittered;
use distlock_core::clock::Moment;
use distlock_core::select::until;
use distlock_core::store::owner::{Owner, RELEASE_REPEATS};
use distlock_core::store::{Fault, Freed, Op};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::services::Services;
use crate::engine::Unfinished;
use crate::error::{BackendKind, IntoLockError};
use crate::observe::Verb;

/// The pause after a release has failed; doubled up to a second while none is confirmed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many are tried after a pause, and how many at most at once when all is well.
const FEW: usize = 4;
const MANY: usize = 256;
/// How long one try waits for a connection once the lock would have expired by itself.
const LATE_TRY: Duration = Duration::from_secs(1);

/// The releases of one manager that are not confirmed.
#[derive(Default)]
pub(crate) struct Retries {
    /// By connection.
    lanes: Mutex<HashMap<usize, Arc<Lane>>>,
}

/// A release that is not confirmed.
pub(super) struct Unconfirmed {
    owner: Arc<Owner>,
    /// The lock is to be kept until then.
    due: Option<Moment>,
    /// How many of the repeats are over.
    repeats: usize,
    /// Counts it until it is done.
    _unfinished: Unfinished,
}

/// The next step for a release after a try.
enum Verdict {
    Done(Freed),
    /// It is tried again as soon as others go through.
    Again,
    /// It is tried again, but not before this time has passed.
    Later(Duration),
}

/// A release that is done with.
pub(super) struct Confirmed {
    pub(super) owner: Arc<Owner>,
    /// For how long the lock is still kept.
    pub(super) keep: Option<Duration>,
    pub(super) freed: Freed,
    _unfinished: Unfinished,
}

/// The next step for a release that was handed in.
pub(super) enum Retried {
    /// It needs no other try.
    Done(Confirmed),
    /// The task of its connection tries it again.
    Joined,
    /// It is the first one of its connection: have a task take what this confirms.
    Starts(Arc<Lane>),
}

impl Unconfirmed {
    pub(super) fn new(owner: Arc<Owner>, due: Option<Moment>, unfinished: Unfinished) -> Self {
        Self { owner, due, repeats: 0, _unfinished: unfinished }
    }

    fn try_again(&self, services: &Services) -> Op<Freed> {
        let Services { store, clock, observers, .. } = services;
        let now = clock.now();
        let left = self.due.map(|due| due.since(now));
        let keep = left.filter(|left| !left.is_zero());
        let limit = self.owner.expired_by().after(FIRST_PAUSE).max(now.after(LATE_TRY));
        let op = store.clone().release(self.owner.clone(), keep, limit);
        observers.timed(Verb::Release, (*clock, now), op)
    }

    /// Decides what happens to it after a try.
    fn judge(&mut self, result: Result<Freed, Fault>, now: Moment, services: &Services) -> Verdict {
        match result {
            Ok(freed) if freed.settled => Verdict::Done(freed),
            Ok(freed) => self.repeat().unwrap_or(Verdict::Done(freed)),
            Err(fault) => self.failed(fault, now, services),
        }
    }

    fn failed(&mut self, fault: Fault, now: Moment, services: &Services) -> Verdict {
        let owner = &self.owner;
        let nothing = Verdict::Done(Freed::nothing());
        if !owner.may_be_stored() {
            return nothing;
        }
        // Waiters find out by themselves: they poll.
        if owner.was_freed() && now >= owner.gone_by() {
            return nothing;
        }
        let may_be_held = owner.was_granted() || owner.in_doubt();
        let again = match &fault {
            // A place that is left in the queue delays those after it by a reservation when its turn comes.
            _ if now >= owner.gone_by().max(owner.stands_until()) => None,
            Fault { passing: true, .. } => Some(Verdict::Again),
            // Operators often fix this soon, so keep trying.
            Fault { kind: BackendKind::Refused, .. } => Some(Verdict::Again),
            // Trying again does not help, and a place is passed over when its turn comes.
            _ if !may_be_held => None,
            _ => self.repeat(),
        };
        again.unwrap_or_else(|| {
            if !may_be_held {
                return nothing;
            }
            let lock = &self.owner.lock;
            services.observers.released_late(lock, fault.into_error(Some(lock)), true);
            nothing
        })
    }

    fn repeat(&mut self) -> Option<Verdict> {
        let pause = RELEASE_REPEATS.get(self.repeats)?;
        self.repeats += 1;
        Some(Verdict::Later(*pause))
    }

    fn done(self, freed: Freed, services: &Services) -> Confirmed {
        let Self { owner, due, _unfinished, .. } = self;
        let keep = due.map(|due| due.since(services.clock.now())).filter(|keep| !keep.is_zero());
        Confirmed { owner, keep, freed, _unfinished }
    }
}

impl Retries {
    /// Takes in a release whose first try has ended with `first`.
    pub(super) fn begin(
        &self,
        mut release: Unconfirmed,
        first: Result<Freed, Fault>,
        services: &Services,
    ) -> Retried {
        match release.judge(first, services.clock.now(), services) {
            Verdict::Done(freed) => Retried::Done(release.done(freed, services)),
            Verdict::Again => self.add(release, None, services),
            Verdict::Later(pause) => self.add(release, Some(Instant::now() + pause), services),
        }
    }

    fn add(&self, release: Unconfirmed, at: Option<Instant>, services: &Services) -> Retried {
        let number = services.store.lane(&release.owner.lock);
        let lane = self.lanes().entry(number).or_default().clone();
        let starts = {
            let mut backlog = lane.backlog();
            backlog.add(release, at);
            !std::mem::replace(&mut backlog.runs, true)
        };
        lane.changed.notify_one();
        if starts { Retried::Starts(lane) } else { Retried::Joined }
    }

    /// Has every release tried now: there is not much time left.
    pub(crate) fn hurry(&self) {
        for lane in self.lanes().values() {
            let mut backlog = lane.backlog();
            (backlog.pause, backlog.paused_until) = (FIRST_PAUSE, None);
            lane.changed.notify_one();
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<usize, Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The releases that go over one connection.
pub(super) struct Lane {
    backlog: Mutex<Backlog>,
    changed: Notify,
}

struct Backlog {
    /// Whether there is a task for it.
    runs: bool,
    /// To be tried next; what was tried last is at the end.
    ready: VecDeque<Unconfirmed>,
    later: BinaryHeap<Reverse<Later>>,
    /// How many are tried at once.
    width: usize,
    /// The pause after the next round in which none goes through.
    pause: Duration,
    paused_until: Option<Instant>,
}

struct Later {
    at: Instant,
    release: Unconfirmed,
}

impl Default for Lane {
    fn default() -> Self {
        let backlog = Backlog {
            runs: false,
            ready: VecDeque::new(),
            later: BinaryHeap::new(),
            width: FEW,
            pause: FIRST_PAUSE,
            paused_until: None,
        };
        Self { backlog: Mutex::new(backlog), changed: Notify::new() }
    }
}

/// The next step of a lane.
enum Step {
    Round(Vec<Unconfirmed>),
    Pause(Instant),
    End,
}

impl Lane {
    /// Tries its releases again, and returns those that are done with after a round; `None` once there is
    /// nothing left to try. Call it again until then.
    pub(super) async fn confirmed(&self, services: &Services) -> Option<Vec<Confirmed>> {
        loop {
            let step = self.backlog().next(Instant::now());
            match step {
                Step::Round(round) => return Some(self.round(round, services).await),
                Step::Pause(end) => {
                    until(self.changed.notified(), tokio::time::sleep_until(end)).await;
                }
                Step::End => return None,
            }
        }
    }

    async fn round(&self, round: Vec<Unconfirmed>, services: &Services) -> Vec<Confirmed> {
        let tries = round.iter().map(|release| release.try_again(services)).collect();
        let results = all(tries).await;
        let went_through = results.iter().any(Result::is_ok);
        let mut done = Vec::new();
        let (now, at) = (services.clock.now(), Instant::now());
        let mut backlog = self.backlog();
        for (mut release, result) in round.into_iter().zip(results) {
            match release.judge(result, now, services) {
                Verdict::Done(freed) => done.push(release.done(freed, services)),
                Verdict::Again => backlog.ready.push_back(release),
                Verdict::Later(pause) => {
                    backlog.later.push(Reverse(Later { at: at + pause, release }));
                }
            }
        }
        backlog.went(went_through, at);
        done
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog {
    /// Adds a release whose try has just failed, or which is to be tried again at a time.
    fn add(&mut self, release: Unconfirmed, at: Option<Instant>) {
        if !self.runs {
            (self.width, self.pause, self.paused_until) = (FEW, FIRST_PAUSE, None);
        }
        match at {
            Some(at) => self.later.push(Reverse(Later { at, release })),
            None => {
                if self.ready.is_empty() && self.paused_until.is_none() {
                    self.paused_until = Some(Instant::now() + jittered(self.pause));
                }
                self.ready.push_back(release);
            }
        }
    }

    fn next(&mut self, now: Instant) -> Step {
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            return Step::Pause(end);
        }
        self.paused_until = None;
        while self.later.peek().is_some_and(|Reverse(later)| later.at <= now) {
            self.ready.extend(self.later.pop().map(|Reverse(later)| later.release));
        }
        if !self.ready.is_empty() {
            let width = self.width.min(self.ready.len());
            return Step::Round(self.ready.drain(..width).collect());
        }
        match self.later.peek() {
            Some(Reverse(later)) => Step::Pause(later.at),
            None => {
                // Give back the memory that a burst has needed.
                (self.ready, self.later) = Default::default();
                self.runs = false;
                Step::End
            }
        }
    }

    /// Adapts the back-off after a round: whether one release went `through`.
    fn went(&mut self, through: bool, now: Instant) {
        if through {
            (self.width, self.pause) = ((self.width * 2).min(MANY), FIRST_PAUSE);
            self.paused_until = None;
        } else {
            self.paused_until = Some(now + jittered(self.pause));
            (self.width, self.pause) = (FEW, (self.pause * 2).min(LONGEST_PAUSE));
        }
    }
}

/// Awaits releases that are under way at the same time; they are sent in order.
async fn all(mut tries: Vec<Op<Freed>>) -> Vec<Result<Freed, Fault>> {
    let mut results: Vec<_> = tries.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (one, result) in tries.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(now) = one.as_mut().poll(cx)
            {
                *result = Some(now);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Later {}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}
