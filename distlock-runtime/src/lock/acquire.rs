//! Taking a lock: one try at once, then a place in the line until `wait` is over.
//!
//! Every try has a token of its own that is known here before its command is sent, so that a
//! future dropped at any await, or an answer that never came, is followed by a release of it.
//!
//! Several locks are taken in stored order, all at once if they are free. If one is not, those
//! behind it are given back and taken one after the other, holding what comes before: everybody
//! waits in the same order, so nobody waits in a circle.
//!
//! A lease that ends before the caller has it is nothing the caller needs to know of: no body has run
//! under it. The call asks again while it may wait, and is `Busy` then.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::core::{Arrival, Denied, Request};
use super::guard::LockGuard;
use super::lead::{Alone, Lead, Settled, Try};
use super::lease::Lease;
use super::locks::Locks;
use super::waiter::Waiting;
use super::{nested, outage};
use crate::clock::Moment;
use crate::error::{BackendKind, LockError};
use crate::name::LockName;
use crate::one_or_many::OneOrMany;
use crate::options::{OnLost, Release, Resolved};
use crate::store::{Answer, Attempt, Fault, Limit, OpOn};

/// How long after its time a call for several locks may still come to an end by itself.
const LATE: Duration = Duration::from_millis(50);

/// What is asked for, with the manager's defaults filled in.
pub(crate) struct Ask {
    /// In stored order, each once.
    pub(crate) wanted: OneOrMany<Arc<LockName>>,
    pub(crate) options: Resolved,
}

/// A call for one lock or several that has begun.
pub(crate) struct Call {
    pub(super) locks: Arc<Locks>,
    pub(super) request: Request,
    /// How many calls of this process may wait for a lock, this one included; 0 if it does not wait.
    line: u32,
    /// What is to be taken, and what an outer call holds.
    pub(super) open: OneOrMany<Arc<LockName>>,
    joined: OneOrMany<Arc<Lease>>,
    on_lost: OnLost,
    release: Release,
    /// The store has been gone for so long that the call does not wait for it as it would for others.
    cut_short: bool,
}

impl Call {
    /// A call that begins at `asked`, in a poll of its caller's.
    pub(crate) fn new(locks: Arc<Locks>, ask: Ask, asked: Moment) -> Result<Self, LockError> {
        let Ask { wanted, options } = ask;
        let Resolved { term, wait, on_lost, reentrant, max_waiters, release } = options;
        let table = &locks.table;
        let answer_by = asked.after(wait.max(locks.settings.command_timeout));
        let (mut joined, mut open) = (OneOrMany::none(), OneOrMany::none());
        for one in wanted {
            match nested::holder(|lease| lease.is_lock(one.stored(), table)) {
                None => open.push(one),
                Some(outer) if reentrant => joined.push(outer),
                Some(_) => {
                    return Err(LockError::WouldDeadlock { lock: Box::new((*one).clone()) });
                }
            }
        }
        let several = open.len() > 1;
        // What is taken first must not be held for a future that nobody polls any more.
        let part_until = several.then(|| answer_by.after(LATE));
        let wait_until = asked.after(wait);
        let limit = Limit::ALONE;
        let request =
            Request { limit, term, asked, wait_until, answer_by, part_until, hurried: false };
        let line = match max_waiters {
            _ if wait.is_zero() => 0,
            None => u32::MAX,
            Some(most) => most,
        };
        let cut_short = outage::cuts_short(&locks, &request);
        Ok(Self { locks, request, line, open, joined, on_lost, release, cut_short })
    }

    /// Acquires within max(`wait`, `command_timeout`), and sooner where the store has been gone for
    /// long.
    ///
    /// Not an `async fn`, which would keep twice what it is given.
    pub(crate) fn acquire(
        mut self,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        async move {
            if std::mem::take(&mut self.cut_short) {
                return outage::acquire_meanwhile(self).await;
            }
            let lease = {
                let mut acquiring = Acquiring {
                    locks: &self.locks,
                    request: &mut self.request,
                    line: self.line,
                    has_waited: false,
                    waited_for: None,
                };
                match (&self.open, self.joined.is_empty()) {
                    (OneOrMany::One(one), true) => acquiring.one(one).await?,
                    (several, _) => {
                        let all =
                            Box::pin(acquiring.all(several, &self.joined, self.on_lost)).await;
                        return all.map(|guard| guard.releasing(self.release));
                    }
                }
            };
            Ok(LockGuard::of(self.locks, self.on_lost, lease).releasing(self.release).complete())
        }
    }
}

struct Acquiring<'a> {
    locks: &'a Arc<Locks>,
    request: &'a mut Request,
    line: u32,
    /// It has had a turn, of which nothing may have come.
    has_waited: bool,
    /// The last of several locks that it got after it had waited for it.
    waited_for: Option<Arc<LockName>>,
}

impl<'a> Acquiring<'a> {
    /// One lock, with a place in its line if need be.
    async fn one(&mut self, wanted: &Arc<LockName>) -> Result<Arc<Lease>, LockError> {
        loop {
            if self.has_waited {
                self.hurry(wanted)?;
            }
            let settled = match self.arrive(wanted) {
                Begun::Trying(attempt, asked) => attempt.settle(asked.await, self.waits()),
                Begun::Settled(settled) => settled,
            };
            match settled {
                Settled::Held(lease) => return Ok(lease),
                Settled::Denied(denied) => return Err(self.error(wanted, denied)),
                Settled::Wait(place) => {
                    let granted = place.granted().await;
                    if let Some(lease) = self.waited(wanted, granted)? {
                        return Ok(lease);
                    }
                }
            }
        }
    }

    /// It has waited in line. `None` if what was granted ran out before its future was polled, and there
    /// is time to ask again.
    fn waited(
        &mut self,
        wanted: &Arc<LockName>,
        granted: Result<Arc<Lease>, Denied<Fault>>,
    ) -> Result<Option<Arc<Lease>>, LockError> {
        let lease = granted.map_err(|denied| self.error(wanted, denied))?;
        self.has_waited = true;
        if lease.is_held() {
            if self.request.part_until.is_some() {
                self.waited_for = Some(wanted.clone());
            }
            return Ok(Some(lease));
        }
        self.locks.table.end_in_background(&lease);
        self.may_ask_again(wanted).map(|()| None)
    }

    /// All of several locks, besides those that an outer call holds.
    async fn all(
        &mut self,
        wanted: &[Arc<LockName>],
        joined: &[Arc<Lease>],
        on_lost: OnLost,
    ) -> Result<LockGuard, LockError> {
        loop {
            let mut guard = LockGuard::new(self.locks.clone(), on_lost);
            joined.iter().for_each(|outer| guard.join(outer.clone()));
            self.several(wanted, &mut guard).await?;
            if guard.is_held() {
                return Ok(guard.complete());
            }
            // The first of them was lost while the last was waited for.
            let lost = guard.lost_before_use()?;
            drop(guard);
            self.may_ask_again(&lost)?;
            self.has_waited = true;
            self.hurry(&lost)?;
        }
    }

    async fn several(
        &mut self,
        wanted: &[Arc<LockName>],
        guard: &mut LockGuard,
    ) -> Result<(), LockError> {
        let taken = self.all_at_once(wanted, guard).await?;
        for one in &wanted[taken..] {
            guard.add(self.one(one).await?);
        }
        Ok(())
    }

    /// Tries all locks in one go and keeps those before the first that was denied; says how many.
    async fn all_at_once(
        &mut self,
        wanted: &[Arc<LockName>],
        guard: &mut LockGuard,
    ) -> Result<usize, LockError> {
        let (mut tries, mut held) = (Vec::with_capacity(wanted.len()), Vec::new());
        let mut first_denied = None;
        for (at, one) in wanted.iter().enumerate() {
            match self.arrive(one) {
                Begun::Trying(attempt, asked) => tries.push((at, attempt, asked)),
                // In a guard: the future may be dropped while the others are tried.
                Begun::Settled(Settled::Held(lease)) => held.push((at, self.guard_of(lease))),
                // Others of this process are before us: what is behind it must not be held.
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
        match first_denied {
            None => Ok(wanted.len()),
            Some((at, Settled::Denied(denied))) if is_lasting(&denied) => {
                Err(self.error(&wanted[at], denied))
            }
            Some((at, Settled::Denied(denied))) if !self.waits() => {
                Err(self.error(&wanted[at], denied))
            }
            Some((at, Settled::Wait(place))) => {
                let granted = place.granted().await;
                match self.waited(&wanted[at], granted)? {
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
    fn arrive(&self, wanted: &Arc<LockName>) -> Begun<'a> {
        let table = &self.locks.table;
        if table.is_closed() {
            return Begun::Settled(Settled::Denied(Denied::Closed));
        }
        let line = usize::try_from(self.line).ok().filter(|_| self.line < u32::MAX);
        let by = match table.arrive(wanted, *self.request, line.unwrap_or(usize::MAX)) {
            Arrival::Lead(attempt) => Try::Lead(Lead::new(table, attempt)),
            Arrival::Alone(attempt) => Try::Alone(Alone::new(table, attempt)),
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
        let term = self.request.stored_term(table.needs_renewal());
        let attempt = Attempt { owner: by.owner().clone(), term, look: !self.waits() };
        let asked = self.locks.store.try_acquire(attempt, self.request.answer_by);
        Begun::Trying(by, asked)
    }

    fn guard_of(&self, lease: Arc<Lease>) -> LockGuard {
        LockGuard::of(self.locks.clone(), OnLost::Cancel, lease)
    }

    fn waits(&self) -> bool {
        self.line > 0
    }

    /// What was spent in line is missing for the next answer: if there is not enough left for one, it
    /// is not the store's fault.
    fn hurry(&mut self, wanted: &Arc<LockName>) -> Result<(), LockError> {
        let now = self.locks.table.clock().now();
        if now >= self.request.answer_by {
            return Err(self.error(wanted, Denied::TooLate));
        }
        self.request.asked = now;
        let answered_by = now.after(self.locks.settings.command_timeout);
        self.request.hurried = answered_by > self.request.answer_by;
        Ok(())
    }

    /// A lock was granted, and lost before the caller had it.
    fn may_ask_again(&self, lost: &Arc<LockName>) -> Result<(), LockError> {
        if self.locks.table.is_closed() || self.locks.table.clock().now() >= self.request.wait_until
        {
            return Err(self.locks.busy(lost, None));
        }
        Ok(())
    }

    fn error(&self, wanted: &Arc<LockName>, denied: Denied<Fault>) -> LockError {
        let fault = match denied {
            // `close` takes calls out of their lines, which looks like any other end.
            _ if self.locks.table.is_closed() => return LockError::Closed,
            Denied::Taken(remaining) => return self.locks.busy(wanted, remaining),
            Denied::TooLate => {
                return self.locks.busy(self.waited_for.as_ref().unwrap_or(wanted), None);
            }
            Denied::Fault(fault) => fault,
            Denied::Unanswered => Fault::timed_out(),
            Denied::Outlasted => {
                let text = "its answer took longer than the lock's ttl";
                Fault::passing(BackendKind::TimedOut, text)
            }
            Denied::NoFence => Fault::lasting(BackendKind::Other, "no fencing token is left"),
            Denied::Closed => Fault::closed(),
        };
        fault.into_error(Some(wanted)).advising(self.locks.settings.retry_after)
    }
}

/// Whether another try would come to the same.
fn is_lasting(denied: &Denied<Fault>) -> bool {
    match denied {
        Denied::Fault(fault) => !fault.passing,
        Denied::NoFence | Denied::Closed => true,
        Denied::Taken(_) | Denied::TooLate | Denied::Unanswered | Denied::Outlasted => false,
    }
}

enum Begun<'a> {
    Trying(Try<'a>, OpOn<'a, Answer>),
    Settled(Settled<'a>),
}

/// Tries under way at the same time, sent in order, each with its lock's number.
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
