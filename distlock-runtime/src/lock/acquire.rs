//! Taking a lock: one try at once, then a place in the line until `wait` is over.
//!
//! Every try has a token of its own that is known here before its command is sent, so that a
//! future dropped at any await, or an answer that never came, is followed by a release of it.
//!
//! Several locks are taken in stored order, all at once if they are free. If one is not, those
//! behind it are given back and taken one after the other, holding what comes before: all calls
//! wait in the same order, so there is no circle of waiters.
//!
//! A lease that ends before the caller has it is nothing the caller needs to know of: no body has run
//! under it. The call asks again while it may wait, and is `Busy` then.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::core::{Arrival, Denied, Request};
use super::guard::LockGuard;
use super::lease::Lease;
use super::locks::Locks;
use super::told::Told;
use super::try_acquire::{Alone, Lead, Settled, Try};
use super::waiter::Waiting;
use crate::error::{BackendKind, IntoLockError, LockError};
use crate::name::LockName;
use crate::observe::{InLine, Verb, WaitSpan, in_acquire_span};
use crate::options::{OnLost, Release};
use crate::store::owner::TOKENS_PER_FENCE;
use crate::store::{Answer, Attempt, Fault, OpOn};

/// A call under way.
pub(super) struct Acquiring<'a> {
    pub(super) locks: &'a Arc<Locks>,
    pub(super) request: &'a mut Request,
    /// The lock it is about now.
    pub(super) wanted: &'a Arc<LockName>,
    pub(super) line: u32,
    /// It has had a turn, of which nothing may have come.
    pub(super) has_waited: bool,
    pub(super) told: Told,
    /// Most calls have nothing of it: theirs is one pointer.
    pub(super) wait: Option<Box<Wait>>,
}

/// What only a call has that waits.
#[derive(Default)]
pub(super) struct Wait {
    _in_line: InLine,
    /// The last of several locks that it got after it had waited for it.
    got: Option<Arc<LockName>>,
}

impl<'a> Acquiring<'a> {
    /// One lock, with a place in its line if need be.
    pub(super) async fn one(&mut self) -> Result<Arc<Lease>, LockError> {
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
        if self.told == Told::Nothing {
            self.told = Told::Waits;
            let in_line = self.locks.table.observers().waiting(self.wanted, false);
            if in_line.is_counted() {
                self.wait = Some(Box::new(Wait { _in_line: in_line, got: None }));
            }
        }
        WaitSpan::begin(self.wanted, || place.behind())
    }

    /// It has waited in line. `None` if what was granted ran out before its future was polled, and there
    /// is time to ask again.
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
        let now = self.locks.table.clock().now();
        lease.account().begin(now);
        if lease.is_held_at(now) {
            if self.request.part_until.is_some() {
                self.wait.get_or_insert_with(Box::default).got = Some(self.wanted.clone());
            }
            return Ok(Some(lease));
        }
        self.locks.table.end_in_background(&lease);
        self.may_ask_again(self.wanted).map(|()| None)
    }

    /// All of several locks, besides those that an outer call holds.
    pub(super) async fn all(
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

    /// Every later holder of one of several locks is to have a larger fencing token than all of them.
    async fn lift(&self, guard: &LockGuard) -> Result<(), LockError> {
        let Locks { store, table, settings, .. } = &**self.locks;
        if !store.has_many_counters() {
            return Ok(());
        }
        let locks = guard.leases().iter().map(|lease| lease.name().clone()).collect();
        let fence = guard.fencing_token() / TOKENS_PER_FENCE;
        let answer_by = table.clock().now().after(settings.command_timeout);
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
            self.locks.table.observers().tried(lease.account());
            guard.add(lease);
        }
        Ok(())
    }

    /// Tries all locks in one go and keeps those before the first that was denied; says how many.
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
                    let table = &self.locks.table;
                    let times = (table.clock(), attempt.sent());
                    tries.push((at, attempt, table.observers().timed(Verb::Set, times, asked)));
                }
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
        let (table, wanted) = (&self.locks.table, self.wanted);
        if table.is_closed() {
            return Begun::Settled(Settled::Denied(Denied::Closed));
        }
        let line = usize::try_from(self.line).ok().filter(|_| self.line < u32::MAX);
        // A call that has just come has read the clock: to do so again costs 1 % of a lock.
        let now = if self.has_waited { table.clock().now() } else { self.request.asked };
        let by = match table.arrive(wanted, *self.request, line.unwrap_or(usize::MAX), now) {
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
        Begun::Trying(by, in_acquire_span(wanted, asked))
    }

    fn guard_of(&self, lease: Arc<Lease>) -> LockGuard {
        LockGuard::of(self.locks.clone(), (OnLost::Cancel, Release::Wait), lease)
    }

    fn waits(&self) -> bool {
        self.line > 0
    }

    /// What was spent in line is missing for the next answer: if there is not enough left for one, it
    /// is not the store's fault.
    fn hurry(&mut self) -> Result<(), LockError> {
        let now = self.locks.table.clock().now();
        if now >= self.request.answer_by {
            return Err(self.error(Denied::TooLate));
        }
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
                let outage = self.locks.store.outage();
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

    /// Reports a refused call to observers, and returns what they know of one that was not refused.
    #[inline]
    pub(super) fn ended(&mut self, error: Option<&LockError>) -> bool {
        let queued = self.told.queued();
        if queued {
            self.wait = None;
        }
        if error.is_some() {
            self.tell_refused(error);
        }
        self.told = Told::End;
        queued
    }

    fn tell_refused(&self, error: Option<&LockError>) {
        let table = &self.locks.table;
        let waited = table.clock().now().since(self.request.asked);
        table.observers().refused(self.wanted, waited, error, self.told.queued());
    }
}

/// A call whose future is dropped before its end.
impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let is_cancelled = matches!(self.told, Told::Nothing | Told::Waits);
        if is_cancelled && self.locks.table.home().is_here() {
            self.tell_refused(None);
        }
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
