//! Acquiring a lock, or several: one try at once, then a place in the line until `wait` is over.
//!
//! Every try has a token of its own that is known here before its command is sent, so that a
//! future dropped at any await, or an answer that never came, is followed by a release of it.
//!
//! Several locks are taken in stored order, all at once if they are free. If one is not, those
//! after it are given back and taken one after the other, holding what comes before: all calls
//! wait in the same order, so there is no circle of waiters.
//!
//! If a lease ends before the caller has it, the caller need not know: no body has run under it. The call
//! asks again while it may wait, and is `Busy` then.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock_core::collections::OneOrMany;
use distlock_core::line::{Arrival, Denied, Limit, Request};
use distlock_core::name::LockName;
use distlock_core::store::owner::TOKENS_PER_FENCE;
use distlock_core::store::{Answer, Attempt, Fault, OpOn};
use tokio::task::coop::consume_budget;

use super::effects::Live;
use super::guard::LockGuard;
use super::lease::Lease;
use super::locks::Locks;
use super::services::Services;
use super::try_acquire::{Settled, Try};
use super::waiter::Waiting;
use super::{hold, outage};
use crate::error::{BackendKind, IntoLockError, LockError};
use crate::observe::{InLine, Verb, WaitSpan, in_acquire_span};
use crate::options::{OnLost, Release, Resolved};

/// The time after its end for which a call for several locks may still end by itself.
const LATE: Duration = Duration::from_millis(50);

/// The locks that are asked for, and how, with the manager's defaults filled in.
pub(crate) struct Ask {
    /// In stored order, each once.
    pub(crate) wanted: OneOrMany<Arc<LockName>>,
    pub(crate) options: Resolved,
}

/// A call for one lock or several that has begun.
pub(crate) struct Call {
    locks: Arc<Locks>,
    request: Request,
    /// How many calls of this process may wait for a lock, this one included; 0 if it does not wait.
    line: u32,
    /// The locks that are to be taken, and those that an enclosing call holds.
    open: OneOrMany<Arc<LockName>>,
    joined: OneOrMany<Arc<Lease>>,
    on_lost: OnLost,
    release: Release,
    /// Whether the store has been gone for long: the call then waits less for it than it would for other holders.
    cut_short: bool,
    reported: Reported,
}

/// The state of a call's report to observers. The code that sees its end first reports it, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Nothing,
    /// Its wait.
    Waits,
    /// Its wait, by [`outage`], which also reports its end if the call is dropped.
    WaitsByOther,
    /// Its end.
    End,
}

impl Reported {
    /// Returns whether observers know that the call waits.
    fn is_queued(self) -> bool {
        matches!(self, Self::Waits | Self::WaitsByOther)
    }
}

impl Call {
    /// Makes a call that begins now, in a poll of its caller's.
    #[inline(always)]
    pub(crate) fn new(locks: Arc<Locks>, ask: Ask) -> Result<Self, LockError> {
        let Ask { wanted, options } = ask;
        let Resolved { term, wait, on_lost, reentrant, max_waiters, release, limit } = options;
        let services = &locks.table.services;
        let asked = services.clock.now();
        // Before anything that takes a mutex: see `home`.
        services.home.check_at(services.clock, asked)?;
        let command_timeout = locks.settings.command_timeout;
        let answer_by = asked.after(wait.max(command_timeout));
        let (open, joined) = match hold::is_nested() {
            true => apart(wanted, services, reentrant, limit)?,
            false => (wanted, OneOrMany::none()),
        };
        let several = open.len() > 1;
        // The first of several locks must not be held for a future that is no longer polled.
        let part_until = several.then(|| answer_by.after(LATE));
        let wait_until = asked.after(wait);
        let request =
            Request { limit, term, asked, wait_until, answer_by, part_until, hurried: false };
        let line = match max_waiters {
            _ if wait.is_zero() => 0,
            None => u32::MAX,
            Some(most) => most,
        };
        let cut_short = wait > command_timeout && outage::is_long(&locks);
        let reported = Reported::Nothing;
        Ok(Self { locks, request, line, open, joined, on_lost, release, cut_short, reported })
    }

    /// Acquires within max(`wait`, `command_timeout`), and sooner where the store has been gone for
    /// long.
    ///
    /// Not an `async fn`, which would keep twice what it is given.
    #[allow(clippy::manual_async_fn)]
    pub(crate) fn acquire(
        mut self,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        async move {
            if std::mem::take(&mut self.cut_short) {
                return self.acquire_meanwhile().await;
            }
            let (lease, queued) = {
                let mut acquiring = Acquiring {
                    locks: &self.locks,
                    request: &mut self.request,
                    wanted: one_of(&self.open, &self.joined),
                    line: self.line,
                    has_waited: false,
                    reported: self.reported,
                    wait: None,
                };
                match (&self.open, self.joined.is_empty()) {
                    (OneOrMany::One(_), true) => {
                        let outcome = acquiring.one().await;
                        let queued = acquiring.ended(outcome.as_ref().err());
                        (outcome?, queued)
                    }
                    (several, _) => {
                        let all = acquiring.all(several, &self.joined, self.on_lost);
                        let outcome = Box::pin(all).await;
                        let queued = acquiring.ended(outcome.as_ref().err());
                        let guard = outcome?.releasing(self.release);
                        guard.complete(queued);
                        if !queued {
                            give_way().await;
                        }
                        return Ok(guard);
                    }
                }
            };
            let guard = LockGuard::of(self.locks, (self.on_lost, self.release), lease);
            guard.complete(queued);
            if !queued {
                give_way().await;
            }
            Ok(guard)
        }
    }

    /// Acquires while the store has been gone for long.
    fn acquire_meanwhile(mut self) -> outage::Acquiring {
        let (locks, asked) = (self.locks.clone(), self.request.asked);
        let lock = one_of(&self.open, &self.joined).clone();
        self.reported = Reported::WaitsByOther;
        outage::give_up_early(locks, lock, asked, || Box::pin(self.acquire()))
    }
}

/// Lets other tasks run. A call that was not queued, but reads with others, or in memory, may have waited for
/// nothing: a loop of them would keep its thread from everything else.
fn give_way() -> impl Future<Output = ()> {
    consume_budget()
}

/// The locks that are to be taken, and those that an enclosing call holds.
type Apart = (OneOrMany<Arc<LockName>>, OneOrMany<Arc<Lease>>);

/// Finds out which of the locks an enclosing call holds; an error if one of them cannot be joined.
fn apart(
    wanted: OneOrMany<Arc<LockName>>,
    services: &Services,
    reentrant: bool,
    limit: Limit,
) -> Result<Apart, LockError> {
    let (mut open, mut joined) = (OneOrMany::none(), OneOrMany::none());
    for one in wanted {
        match hold::holder(|lease| lease.is_lock(one.stored(), services)) {
            None => open.push(one),
            Some(outer) if reentrant && outer.limit() <= limit => joined.push(outer),
            Some(outer) => {
                let error = LockError::would_deadlock(&one, outer.limit(), limit);
                services.observers.refused(&one, Duration::ZERO, Some(&error), false);
                return Err(error);
            }
        }
    }
    Ok((open, joined))
}

fn one_of<'a>(open: &'a [Arc<LockName>], joined: &'a [Arc<Lease>]) -> &'a Arc<LockName> {
    match (open.first(), joined.first()) {
        (Some(open), _) => open,
        (None, Some(outer)) => outer.name(),
        (None, None) => unreachable!("a request names a lock"),
    }
}

/// A call under way.
struct Acquiring<'a> {
    locks: &'a Arc<Locks>,
    request: &'a mut Request,
    /// The lock that it asks for now.
    wanted: &'a Arc<LockName>,
    line: u32,
    /// Whether it has waited before, perhaps for a lease that it did not get.
    has_waited: bool,
    reported: Reported,
    /// `None`, one pointer, for most calls.
    wait: Option<Box<Wait>>,
}

/// State that only a call has that waits.
#[derive(Default)]
struct Wait {
    _in_line: InLine,
    /// The last of several locks that it got after it had waited for it.
    got: Option<Arc<LockName>>,
}

impl<'a> Acquiring<'a> {
    /// Acquires one lock, with a place in its line if need be.
    async fn one(&mut self) -> Result<Arc<Lease>, LockError> {
        loop {
            if self.has_waited {
                self.hurry()?;
            }
            let settled = match self.arrive() {
                Begun::Trying(attempt, asked) => attempt.settle_now(asked.await, self.waits()),
                Begun::Settled(settled) => settled,
            };
            match settled {
                Settled::Held(lease) => return Ok(lease),
                Settled::Denied(denied) => return Err(self.error(denied)),
                Settled::Wait(place) => {
                    let span = self.waits_in_line(&place);
                    let granted = place.granted().await;
                    if let Some(lease) = self.waited(span, granted)? {
                        return Ok(lease);
                    }
                }
            }
        }
    }

    #[inline]
    fn waits_in_line(&mut self, place: &Waiting<'a>) -> WaitSpan {
        if self.reported == Reported::Nothing {
            self.reported = Reported::Waits;
            let in_line = self.locks.table.services.observers.waiting(self.wanted, false);
            if in_line.is_counted() {
                self.wait = Some(Box::new(Wait { _in_line: in_line, got: None }));
            }
        }
        WaitSpan::begin(self.wanted, || place.behind())
    }

    /// Ends its wait in line. Returns `None` if the lease ended before the call's future was polled, and there is
    /// time to ask again.
    #[inline]
    fn waited(
        &mut self,
        span: WaitSpan,
        granted: Result<Arc<Lease>, Denied<Fault>>,
    ) -> Result<Option<Arc<Lease>>, LockError> {
        let lease = match granted.map_err(|denied| self.error(denied)) {
            Ok(lease) => lease,
            Err(error) => {
                span.refused(&error);
                return Err(error);
            }
        };
        span.acquired(lease.fencing_token());
        self.has_waited = true;
        let now = self.locks.table.services.clock.now();
        lease.account.begin(now);
        if lease.is_held_at(now) {
            if self.request.part_until.is_some() {
                self.wait.get_or_insert_with(Box::default).got = Some(self.wanted.clone());
            }
            return Ok(Some(lease));
        }
        self.locks.table.end_in_background(&lease);
        self.may_ask_again(self.wanted).map(|()| None)
    }

    /// Acquires several locks, besides those that an enclosing call holds.
    async fn all(
        &mut self,
        wanted: &'a [Arc<LockName>],
        joined: &[Arc<Lease>],
        on_lost: OnLost,
    ) -> Result<LockGuard, LockError> {
        loop {
            let mut guard = LockGuard::new(self.locks.clone(), on_lost);
            joined.iter().for_each(|outer| guard.join(outer.clone()));
            self.several(wanted, &mut guard).await?;
            if guard.is_held() {
                self.lift(&guard).await?;
            }
            if guard.is_held() {
                return Ok(guard);
            }
            // The first of them was lost while the last was waited for.
            let lost = guard.lost_before_use()?;
            drop(guard);
            self.may_ask_again(&lost)?;
            self.has_waited = true;
            if let Some(lost) = wanted.iter().find(|one| Arc::ptr_eq(one, &lost)) {
                self.wanted = lost;
            }
            self.hurry()?;
        }
    }

    /// Has every later holder of one of several locks get a larger fencing token than all of them.
    async fn lift(&self, guard: &LockGuard) -> Result<(), LockError> {
        let Services { store, clock, command_timeout, .. } = &self.locks.table.services;
        if !store.has_many_counters() {
            return Ok(());
        }
        let locks = guard.leases().iter().map(|lease| lease.name().clone()).collect();
        let fence = guard.fencing_token() / TOKENS_PER_FENCE;
        let answer_by = clock.now().after(*command_timeout);
        let lifted = store.clone().lift(locks, fence, answer_by.min(self.request.answer_by));
        lifted.await.map_err(|fault| self.error(Denied::Fault(fault)))
    }

    async fn several(
        &mut self,
        wanted: &'a [Arc<LockName>],
        guard: &mut LockGuard,
    ) -> Result<(), LockError> {
        let taken = self.all_at_once(wanted, guard).await?;
        for one in &wanted[taken..] {
            self.wanted = one;
            let lease = self.one().await?;
            self.locks.table.services.observers.tried(&lease.account);
            guard.add(lease);
        }
        Ok(())
    }

    /// Tries all locks in one go, and keeps those before the first that was denied. Returns how many.
    async fn all_at_once(
        &mut self,
        wanted: &'a [Arc<LockName>],
        guard: &mut LockGuard,
    ) -> Result<usize, LockError> {
        let (mut tries, mut held) = (Vec::with_capacity(wanted.len()), Vec::new());
        let mut first_denied = None;
        for (at, one) in wanted.iter().enumerate() {
            self.wanted = one;
            match self.arrive() {
                Begun::Trying(attempt, asked) => {
                    let Services { clock, observers, .. } = &self.locks.table.services;
                    let asked = observers.timed(Verb::Set, (*clock, attempt.sent()), asked);
                    tries.push((at, attempt, asked));
                }
                // In a guard: the future may be dropped while the others are tried.
                Begun::Settled(Settled::Held(lease)) => held.push((at, self.guard_of(lease))),
                // Others of this process are before us: the locks after this one must not be held.
                Begun::Settled(settled) => {
                    first_denied = Some((at, settled));
                    break;
                }
            }
        }
        for (at, attempt, answer) in all(tries).await {
            match attempt.settle(answer, self.waits()) {
                Settled::Held(lease) => held.push((at, self.guard_of(lease))),
                settled if first_denied.as_ref().is_none_or(|(first, _)| at < *first) => {
                    first_denied = Some((at, settled));
                }
                _ => {}
            }
        }
        held.sort_by_key(|(at, _)| *at);
        let taken = first_denied.as_ref().map_or(wanted.len(), |(at, _)| *at);
        for (_, own) in held.into_iter().filter(|(at, _)| *at < taken) {
            guard.take_over(own);
        }
        if let Some(denied) = wanted.get(taken) {
            self.wanted = denied;
        }
        match first_denied {
            None => Ok(wanted.len()),
            Some((_, Settled::Denied(denied))) if is_lasting(&denied) || !self.waits() => {
                Err(self.error(denied))
            }
            Some((at, Settled::Wait(place))) => {
                let span = self.waits_in_line(&place);
                let granted = place.granted().await;
                match self.waited(span, granted)? {
                    Some(lease) => {
                        guard.add(lease);
                        Ok(at + 1)
                    }
                    None => Ok(at),
                }
            }
            Some((at, _)) => Ok(at),
        }
    }

    /// Takes a place in the line, or begins a try with a token of its own.
    #[inline]
    fn arrive(&self) -> Begun<'a> {
        let table = &self.locks.table;
        if table.is_closed() {
            return Begun::Settled(Settled::Denied(Denied::Closed));
        }
        let (attempt, leads) = match self.arrive_in_line() {
            Arrival::Lead(attempt) => (attempt, true),
            Arrival::Alone(attempt) => (attempt, false),
            // `close` ends the waits it finds after it has set this: one of the two sees the other.
            Arrival::Wait(_, lease) => {
                let waiting = Waiting::new(table, lease);
                return Begun::Settled(match table.is_closed() {
                    true => Settled::Denied(Denied::Closed),
                    false => Settled::Wait(waiting),
                });
            }
            Arrival::Held(_, lease, _) => return Begun::Settled(Settled::Held(lease)),
            Arrival::Busy(remaining) => {
                return Begun::Settled(Settled::Denied(Denied::Taken(remaining)));
            }
        };
        let by = Try::new(table, attempt, leads);
        let Services { store, needs_renewal, .. } = &table.services;
        let term = self.request.stored_term(*needs_renewal);
        let attempt = Attempt { owner: by.owner.clone(), term, look: !self.waits() };
        let asked = store.try_acquire(attempt, self.request.answer_by);
        Begun::Trying(by, in_acquire_span(self.wanted, asked))
    }

    #[inline]
    fn arrive_in_line(&self) -> Arrival<Live> {
        let (table, request) = (&self.locks.table, *self.request);
        let most = usize::try_from(self.line).ok().filter(|_| self.line < u32::MAX);
        // A call that has just come has read the clock: to do so again costs 1 % of a lock.
        let now = if self.has_waited { table.services.clock.now() } else { request.asked };
        table.change(self.wanted, |line, effects| {
            let seat = |place| Lease::new(&table.services, self.wanted, request, (place, now));
            let most = most.unwrap_or(usize::MAX);
            let arrival = line.arrive(request, most, now, seat, effects);
            match &arrival {
                Arrival::Wait(place, _) => {
                    effects.waits(&request);
                    effects.joins_a_crowd = line.is_crowd(*place);
                }
                Arrival::Lead(attempt) | Arrival::Alone(attempt) => attempt.caller.trying(),
                Arrival::Held(_, lease, grant) => lease.granted(*grant, now),
                Arrival::Busy(_) => {}
            }
            arrival
        })
    }

    fn guard_of(&self, lease: Arc<Lease>) -> LockGuard {
        LockGuard::of(self.locks.clone(), (OnLost::Cancel, Release::Wait), lease)
    }

    fn waits(&self) -> bool {
        self.line > 0
    }

    /// Checks how much time the wait in line has left for the next answer: if it is not enough, the store is not
    /// to blame.
    fn hurry(&mut self) -> Result<(), LockError> {
        let now = self.locks.table.services.clock.now();
        if now >= self.request.answer_by {
            return Err(self.error(Denied::TooLate));
        }
        let answered_by = now.after(self.locks.settings.command_timeout);
        self.request.hurried = answered_by > self.request.answer_by;
        Ok(())
    }

    /// Returns an error if there is no time to ask again for a lock that was granted, and lost before the caller
    /// had it.
    fn may_ask_again(&self, lost: &Arc<LockName>) -> Result<(), LockError> {
        let table = &self.locks.table;
        if table.is_closed() || table.services.clock.now() >= self.request.wait_until {
            return Err(self.locks.busy(lost, None));
        }
        Ok(())
    }

    fn error(&self, denied: Denied<Fault>) -> LockError {
        let wanted = self.wanted;
        let fault = match denied {
            // `close` takes calls out of their lines, which looks like any other end.
            _ if self.locks.table.is_closed() => return LockError::Closed,
            Denied::Taken(remaining) => return self.locks.busy(wanted, remaining),
            Denied::TooLate => {
                let got = self.wait.as_ref().and_then(|wait| wait.got.as_ref());
                return self.locks.busy(got.unwrap_or(wanted), None);
            }
            Denied::Fault(fault) => fault,
            Denied::Unanswered => {
                let outage = self.locks.table.services.store.outage();
                outage.map_or_else(Fault::timed_out, |outage| outage.fault)
            }
            Denied::Outlasted => {
                let text = "its answer took longer than the lock's ttl";
                Fault::passing(BackendKind::TimedOut, text)
            }
            Denied::NoFence => Fault::lasting(BackendKind::Other, "no fencing token is left"),
            Denied::Closed => Fault::closed(),
        };
        fault.into_error(Some(wanted)).advising(self.locks.settings.advice)
    }

    /// Reports a refused call to observers. Returns whether they know that the call waits.
    #[inline]
    fn ended(&mut self, error: Option<&LockError>) -> bool {
        let queued = self.reported.is_queued();
        if queued {
            self.wait = None;
        }
        if error.is_some() {
            self.report_refused(error);
        }
        self.reported = Reported::End;
        queued
    }

    fn report_refused(&self, error: Option<&LockError>) {
        let Services { clock, observers, .. } = &self.locks.table.services;
        let waited = clock.now().since(self.request.asked);
        observers.refused(self.wanted, waited, error, self.reported.is_queued());
    }
}

/// Reports a call whose future is dropped before its end.
impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let is_cancelled = matches!(self.reported, Reported::Nothing | Reported::Waits);
        if is_cancelled && self.locks.table.services.home.is_here() {
            self.report_refused(None);
        }
    }
}

/// Returns whether another try would end the same way.
fn is_lasting(denied: &Denied<Fault>) -> bool {
    match denied {
        Denied::Fault(fault) => !fault.passing,
        Denied::NoFence | Denied::Closed => true,
        Denied::Taken(_) | Denied::TooLate | Denied::Unanswered | Denied::Outlasted => false,
    }
}

/// The beginning of a call for one lock.
enum Begun<'a> {
    Trying(Try<'a>, OpOn<'a, Answer>),
    Settled(Settled<'a>),
}

/// Awaits tries that are under way at the same time, each with its lock's number; they were sent in order.
async fn all<'a>(
    mut tries: Vec<(usize, Try<'a>, OpOn<'a, Answer>)>,
) -> Vec<(usize, Try<'a>, Result<Answer, Fault>)> {
    let mut answers: Vec<Option<Result<Answer, Fault>>> = tries.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for ((_, _, asked), answer) in tries.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(now) = asked.as_mut().poll(cx)
            {
                *answer = Some(now);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let answered = tries.into_iter().zip(answers.into_iter().flatten());
    answered.map(|((at, by, _), answer)| (at, by, answer)).collect()
}
