//! Retries releases until they are confirmed, or until the lock, or a place in the queue, has expired by
//! itself.
//! See [`release`](super::release) for which those are.
//!
//! There may be thousands of them when a server is in trouble, and it must not be pressed then. So
//! all that go over one connection have one back-off: after each pause a few are tried, not always
//! the same, and as soon as one is confirmed the others follow.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::table::{LockTable, lock};
use crate::clock::Moment;
use crate::engine::Unfinished;
use crate::error::{BackendKind, IntoLockError};
use crate::jitter::jittered;
use crate::observe::Verb;
use crate::select::until;
use crate::store::owner::{Owner, RELEASE_REPEATS};
use crate::store::{Fault, Freed, Op};

/// The pause after a release has failed; doubled up to a second while none is confirmed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many are tried after a pause, and up to so many at once when all is well.
const FEW: usize = 4;
const MANY: usize = 256;
/// How long one try waits for a connection once the lock would have expired by itself.
const LATE_TRY: Duration = Duration::from_secs(1);

/// The releases that are not confirmed, of one manager.
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
    /// Counts it as long as it is not done.
    _unfinished: Unfinished,
}

impl Unconfirmed {
    pub(crate) fn new(owner: Arc<Owner>, due: Option<Moment>, unfinished: Unfinished) -> Self {
        Self { owner, due, repeats: 0, _unfinished: unfinished }
    }

    fn try_again(&self, table: &LockTable) -> Op<Freed> {
        let now = table.clock().now();
        let left = self.due.map(|due| due.since(now));
        let keep = left.filter(|left| !left.is_zero());
        let limit = self.owner.expired_by().after(FIRST_PAUSE).max(now.after(LATE_TRY));
        let op = table.store().clone().release(self.owner.clone(), keep, limit);
        table.observers().timed(Verb::Release, (table.clock(), now), op)
    }

    /// What becomes of it, after a try that came to `result`.
    fn judge(&mut self, result: Result<Freed, Fault>, now: Moment, table: &LockTable) -> Verdict {
        match result {
            Ok(freed) if freed.settled => Verdict::Done(freed),
            Ok(freed) => self.repeat().unwrap_or(Verdict::Done(freed)),
            Err(fault) => self.failed(fault, now, table),
        }
    }

    fn failed(&mut self, fault: Fault, now: Moment, table: &LockTable) -> Verdict {
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
            table.observers().released_late(lock, fault.into_error(Some(lock)), true);
            nothing
        })
    }

    fn repeat(&mut self) -> Option<Verdict> {
        let pause = RELEASE_REPEATS.get(self.repeats)?;
        self.repeats += 1;
        Some(Verdict::Later(*pause))
    }

    fn done(&self, freed: &Freed, table: &Arc<LockTable>) {
        let keep = self.due.map(|due| due.since(table.clock().now()));
        table.freed(&self.owner, keep.filter(|keep| !keep.is_zero()), freed);
    }
}

enum Verdict {
    Done(Freed),
    /// As soon as others go through.
    Again,
    /// Not before this time has passed.
    Later(Duration),
}

impl Retries {
    /// Tries a release again whose first try came to `first`, until it is confirmed.
    pub(super) fn retry_until_confirmed(
        &self,
        mut release: Unconfirmed,
        first: Result<Freed, Fault>,
        table: &Arc<LockTable>,
    ) {
        let lane = match release.judge(first, table.clock().now(), table) {
            Verdict::Done(freed) => return release.done(&freed, table),
            Verdict::Again => self.add(release, None, table),
            Verdict::Later(pause) => self.add(release, Some(Instant::now() + pause), table),
        };
        if let Some(lane) = lane {
            let own = table.clone();
            table.background().spawn(async move { lane.run(&own).await });
        }
    }

    /// The lane, if it has no task yet.
    fn add(
        &self,
        release: Unconfirmed,
        at: Option<Instant>,
        table: &LockTable,
    ) -> Option<Arc<Lane>> {
        let number = table.store().lane(&release.owner.lock);
        let lane = self.lanes().entry(number).or_default().clone();
        let starts = {
            let mut state = lane.state();
            state.add(release, at);
            !std::mem::replace(&mut state.runs, true)
        };
        lane.changed.notify_one();
        starts.then_some(lane)
    }

    /// Has every release tried now: there is not much time left.
    pub(crate) fn hurry(&self) {
        for lane in self.lanes().values() {
            let mut state = lane.state();
            (state.pause, state.paused_until) = (FIRST_PAUSE, None);
            lane.changed.notify_one();
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<usize, Arc<Lane>>> {
        lock(&self.lanes)
    }
}

/// The releases that go over one connection.
struct Lane {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// There is a task for it.
    runs: bool,
    /// To be tried next; what was tried last is at the end.
    ready: VecDeque<Unconfirmed>,
    later: BinaryHeap<Reverse<Later>>,
    /// How many are tried at once.
    width: usize,
    /// After the next round in which none goes through.
    pause: Duration,
    paused_until: Option<Instant>,
}

struct Later {
    at: Instant,
    release: Unconfirmed,
}

impl Default for Lane {
    fn default() -> Self {
        let state = State {
            runs: false,
            ready: VecDeque::new(),
            later: BinaryHeap::new(),
            width: FEW,
            pause: FIRST_PAUSE,
            paused_until: None,
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

/// What a lane does next.
enum Next {
    Round(Vec<Unconfirmed>),
    Pause(Instant),
    End,
}

impl Lane {
    async fn run(&self, table: &Arc<LockTable>) {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                Next::Round(round) => self.round(round, table).await,
                Next::Pause(end) => {
                    until(self.changed.notified(), tokio::time::sleep_until(end)).await;
                }
                Next::End => return,
            }
        }
    }

    async fn round(&self, mut round: Vec<Unconfirmed>, table: &Arc<LockTable>) {
        let tries = round.iter().map(|release| release.try_again(table)).collect();
        let results = all(tries).await;
        let went_through = results.iter().any(Result::is_ok);
        let mut done = Vec::new();
        {
            let (now, at) = (table.clock().now(), Instant::now());
            let mut state = self.state();
            for (mut release, result) in round.drain(..).zip(results) {
                match release.judge(result, now, table) {
                    Verdict::Done(freed) => done.push((release, freed)),
                    Verdict::Again => state.ready.push_back(release),
                    Verdict::Later(pause) => {
                        state.later.push(Reverse(Later { at: at + pause, release }));
                    }
                }
            }
            state.went(went_through, at);
        }
        // With the mutex free: what becomes of a lock that is free may come back here.
        done.iter().for_each(|(release, freed)| release.done(freed, table));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// One whose try has just failed, or which is to be tried again at a time.
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

    fn next(&mut self, now: Instant) -> Next {
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            return Next::Pause(end);
        }
        self.paused_until = None;
        while self.later.peek().is_some_and(|Reverse(later)| later.at <= now) {
            self.ready.extend(self.later.pop().map(|Reverse(later)| later.release));
        }
        if !self.ready.is_empty() {
            let width = self.width.min(self.ready.len());
            return Next::Round(self.ready.drain(..width).collect());
        }
        match self.later.peek() {
            Some(Reverse(later)) => Next::Pause(later.at),
            None => {
                // The memory that a burst needed is given back.
                (self.ready, self.later) = Default::default();
                self.runs = false;
                Next::End
            }
        }
    }

    /// A round is over.
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

/// Releases under way at the same time, sent in order.
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
