//! Taking a lock: one try at once, then a place in the line until `wait` is over.
//!
//! Every try has a token of its own that is known here before its command is sent, so that a
//! future dropped at any await, or an answer that never came, is followed by a release of it.
//!
//! Several locks are taken in stored order, all at once if they are free. If one is not, those
//! behind it are given back and taken one after the other, holding what comes before: everybody
//! waits in the same order, so nobody waits in a circle.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::guard::LockGuard;
use super::hold::OnLost;
use super::lease::Lease;
use super::nested;
use super::waiting::Place;
use crate::clock::Moment;
use crate::engine::schedule::Alarm;
use crate::error::{BackendKind, LockError, LockName};
use crate::few::Few;
use crate::jitter::jittered;
use crate::manager::Inner;
use crate::race::until;
use crate::store::{Answer, Claim, Fault, OpOn, Term};

/// A store that cannot tell waiters is looked at again after at most this time.
const LOOK: Duration = Duration::from_millis(250);
/// How long after its time a call for several locks may still come to an end by itself.
const LATE: Duration = Duration::from_millis(50);
/// First pause after a fault; doubled up to a second.
const RETRY: Duration = Duration::from_millis(50);

/// What is asked for, with the manager's defaults filled in.
pub(crate) struct Ask {
    /// In stored order, each once.
    pub(crate) wanted: Few<Arc<LockName>>,
    pub(crate) term: Term,
    pub(crate) wait: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) reentrant: bool,
}

/// Acquires within max(`wait`, `command_timeout`).
pub(crate) async fn acquire(manager: Arc<Inner>, ask: Ask) -> Result<LockGuard, LockError> {
    let Ask { wanted, term, wait, on_lost, reentrant } = ask;
    let limits = Limits::start(&manager, wait);
    let (mut joined, mut open) = (Few::none(), Few::none());
    for one in wanted {
        match nested::holder(|lease| lease.is_lock(one.stored(), &manager.engine.schedule)) {
            None => open.push(one),
            Some(outer) if reentrant => joined.push(outer),
            Some(_) => {
                return Err(LockError::WouldDeadlock { lock: Box::new((*one).clone()) });
            }
        }
    }
    // What is taken first must not be held for a future that nobody polls any more.
    let wanted_until = if open.len() > 1 { limits.overall.after(LATE) } else { Moment::NEVER };
    let patient = !wait.is_zero();
    let acquiring = Acquiring { manager: &manager, term, limits, patient, wanted_until };
    if let (Few::One(one), true) = (&open, joined.is_empty()) {
        let lease = acquiring.one(one).await?;
        return Ok(LockGuard::of(manager, on_lost, lease).complete());
    }
    let mut guard = LockGuard::new(manager.clone(), on_lost);
    joined.into_iter().for_each(|outer| guard.join(outer));
    Box::pin(acquiring.several(&open, &mut guard)).await?;
    // The first of them may have been lost while the last was waited for.
    if guard.is_held() {
        Ok(guard.complete())
    } else {
        Err(guard.lost_error(super::lease::Loss::Expired))
    }
}

/// When an acquire must be over.
struct Limits {
    /// Others may hold the lock until then.
    wait: Moment,
    /// No answer counts after this.
    overall: Moment,
}

impl Limits {
    fn start(manager: &Inner, wait: Duration) -> Self {
        let now = manager.engine.clock().now();
        let overall = now.after(wait.max(manager.settings.command_timeout));
        Self { wait: now.after(wait), overall }
    }
}

/// What a try came to that did not get the lock.
enum Denied {
    Taken(Option<Duration>),
    Fault(Fault),
}

struct Acquiring<'a> {
    manager: &'a Arc<Inner>,
    term: Term,
    limits: Limits,
    /// There is a `wait`.
    patient: bool,
    /// When one of several locks is of no use any more without the others.
    wanted_until: Moment,
}

impl<'a> Acquiring<'a> {
    /// One lock, with a place in its line if need be.
    async fn one(&self, wanted: &Arc<LockName>) -> Result<Arc<Lease>, LockError> {
        let mut denied = Denied::Taken(None);
        if !self.patient || !self.manager.waiting.has_line(wanted.stored()) {
            match self.attempt(wanted).await {
                Ok(lease) => return Ok(lease),
                Err(why) => denied = why,
            }
        }
        if !self.patient {
            return Err(self.error(wanted, denied));
        }
        // On the heap: it is the rare path, and would be part of every locked function's future.
        Box::pin(self.in_line(wanted, denied)).await
    }

    /// Waits in the lock's line.
    async fn in_line(
        &self,
        wanted: &Arc<LockName>,
        mut denied: Denied,
    ) -> Result<Arc<Lease>, LockError> {
        let place = self.manager.waiting.join(wanted);
        if let Denied::Fault(fault) = &denied {
            place.report(Some(fault));
        }
        let mut pause = RETRY;
        loop {
            let now = self.manager.engine.clock().now();
            let look_at = match &denied {
                Denied::Fault(fault) if !fault.passing => return Err(self.error(wanted, denied)),
                Denied::Fault(_) => {
                    let at = now.after(jittered(pause));
                    pause = (pause * 2).min(Duration::from_secs(1));
                    at
                }
                Denied::Taken(rest) => {
                    pause = RETRY;
                    let expiry = rest.map_or(LOOK, |rest| rest + Duration::from_millis(5));
                    now.after(jittered(LOOK).min(expiry))
                }
            };
            if !self.turn(&place, look_at).await {
                // Whoever is not the head never looked, or not lately.
                let trouble = place.trouble().filter(|_| !place.is_head());
                return Err(self.error(wanted, trouble.map_or(denied, Denied::Fault)));
            }
            denied = match self.attempt(wanted).await {
                Ok(lease) => {
                    place.report(None);
                    place.served();
                    return Ok(lease);
                }
                Err(why) => self.weightier(denied, why),
            };
            place.report(match &denied {
                Denied::Fault(fault) => Some(fault),
                Denied::Taken(_) => None,
            });
        }
    }

    async fn several(
        &self,
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
        &self,
        wanted: &[Arc<LockName>],
        guard: &mut LockGuard,
    ) -> Result<usize, LockError> {
        let tries: Vec<_> = wanted.iter().map(|one| self.begin(one)).collect();
        let mut first_denied = None;
        for (at, answer) in all(tries).await.into_iter().enumerate() {
            match (answer, &first_denied) {
                (Ok(lease), None) => guard.add(lease),
                (Err(denied), None) => first_denied = Some((at, denied)),
                // Behind one that was denied: whoever waits for it must not hold this.
                (Ok(lease), Some(_)) => {
                    drop(LockGuard::of(self.manager.clone(), OnLost::Cancel, lease))
                }
                (Err(_), Some(_)) => {}
            }
        }
        match first_denied {
            None => Ok(wanted.len()),
            Some((at, Denied::Fault(fault))) if !fault.passing => {
                Err(self.error(&wanted[at], Denied::Fault(fault)))
            }
            Some((at, denied)) if !self.patient => Err(self.error(&wanted[at], denied)),
            Some((at, _)) => Ok(at),
        }
    }

    /// Resolves when this place should look at the store; false when `wait` is over first.
    async fn turn(&self, place: &Place, look_at: Moment) -> bool {
        loop {
            if place.is_head() && place.take_hint() {
                return true;
            }
            let clock = self.manager.engine.clock();
            // Only the head looks by the clock, so only it needs to be woken for that.
            let at = if place.is_head() { look_at.min(self.limits.wait) } else { self.limits.wait };
            let alarm = Alarm::at(&self.manager.engine.schedule, clock, at);
            let news = until(place.news(), alarm).await.is_some();
            if clock.now() >= self.limits.wait {
                return false;
            }
            if !news && place.is_head() {
                return true;
            }
        }
    }

    /// A look that was cut short because `wait` ended says less than the "taken" before it.
    fn weightier(&self, before: Denied, now: Denied) -> Denied {
        match (&before, &now) {
            (Denied::Taken(_), Denied::Fault(fault))
                if fault.kind == BackendKind::TimedOut
                    && self.manager.engine.clock().now() >= self.limits.wait =>
            {
                before
            }
            _ => now,
        }
    }

    /// One try with a token of its own.
    async fn attempt(&self, wanted: &Arc<LockName>) -> Result<Arc<Lease>, Denied> {
        let (attempt, asked) = self.begin(wanted);
        attempt.resolve(asked.await)
    }

    fn begin(&self, wanted: &Arc<LockName>) -> (Attempt<'a>, OpOn<'a, Answer>) {
        let manager = self.manager;
        let token = manager.owner.issue();
        let claim = Arc::new(Claim::new(wanted.clone(), token, self.term));
        let asked: OpOn<'a, Answer> = if manager.is_closed() {
            Box::pin(std::future::ready(Err(Fault::closed())))
        } else {
            manager.engine.store.try_acquire(claim.clone(), self.limits.overall)
        };
        let attempt = Attempt { manager, claim, open: true, wanted_until: self.wanted_until };
        (attempt, asked)
    }

    fn error(&self, wanted: &Arc<LockName>, denied: Denied) -> LockError {
        match denied {
            Denied::Fault(_) if self.manager.is_closed() => LockError::Closed,
            Denied::Fault(fault) => fault.into_error(Some(wanted)),
            Denied::Taken(retry_after) => {
                let status = self.manager.settings.busy_status;
                LockError::Busy { lock: Box::new((**wanted).clone()), retry_after, status }
            }
        }
    }
}

/// Tries under way at the same time, sent in order.
async fn all(mut tries: Vec<(Attempt<'_>, OpOn<'_, Answer>)>) -> Vec<Result<Arc<Lease>, Denied>> {
    let mut answers: Vec<Option<Result<Answer, Fault>>> = tries.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for ((_, asked), answer) in tries.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(now) = asked.as_mut().poll(cx)
            {
                *answer = Some(now);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let attempts = tries.into_iter().map(|(attempt, _)| attempt);
    attempts.zip(answers.into_iter().flatten()).map(|(own, answer)| own.resolve(answer)).collect()
}

/// A token that may own the lock. Dropped before it is known, it is released.
struct Attempt<'a> {
    manager: &'a Inner,
    claim: Arc<Claim>,
    open: bool,
    wanted_until: Moment,
}

impl Attempt<'_> {
    fn resolve(mut self, answer: Result<Answer, Fault>) -> Result<Arc<Lease>, Denied> {
        match answer {
            Ok(Answer::Granted { fence, sent }) => self.granted(fence, sent),
            Ok(Answer::Taken { rest }) => {
                // A clear no: there is nothing to release.
                self.open = false;
                Err(Denied::Taken(rest))
            }
            Err(fault) => Err(Denied::Fault(fault)),
        }
    }

    fn granted(mut self, fence: u64, sent: Moment) -> Result<Arc<Lease>, Denied> {
        let lease = Lease::start(&self.manager.engine, &self.claim, fence, sent, self.wanted_until);
        if !lease.is_held() {
            lease.finish();
            // Dropping `self` gives it back.
            let text = "its answer took longer than the lock's ttl";
            return Err(Denied::Fault(Fault::passing(BackendKind::TimedOut, text)));
        }
        if self.manager.is_closed() {
            // Closed since it was asked for: close() may have looked before the lease was there.
            lease.finish();
            return Err(Denied::Fault(Fault::closed()));
        }
        self.open = false;
        Ok(lease)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            self.manager.releaser.let_go(self.claim.clone(), None);
        }
    }
}
