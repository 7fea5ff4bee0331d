//! Taking a lock: one try at once, then a place in the line until `wait` is over.
//!
//! Every try has a token of its own that is known here before its command is sent, so that a
//! future dropped at any await, or an answer that never came, is followed by a release of it.

use std::sync::Arc;
use std::time::Duration;

use super::guard::LockGuard;
use super::lease::{Lease, deadline};
use super::release::Releaser;
use super::waiting::Place;
use crate::clock::Moment;
use crate::engine::schedule::Alarm;
use crate::error::{BackendKind, LockError, LockName};
use crate::jitter::jittered;
use crate::manager::Inner;
use crate::race::until;
use crate::store::{Answer, Claim, Fault};

/// A store that cannot tell waiters is looked at again after at most this time.
const LOOK: Duration = Duration::from_millis(250);
/// First pause after a fault; doubled up to a second.
const RETRY: Duration = Duration::from_millis(50);

/// What is asked for, with the manager's defaults filled in.
pub(crate) struct Ask {
    pub(crate) name: Arc<LockName>,
    pub(crate) lock: Arc<str>,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) renew: bool,
}

/// Acquires within max(`wait`, `command_timeout`).
pub(crate) async fn acquire(manager: Arc<Inner>, ask: Ask) -> Result<LockGuard, LockError> {
    let limits = Limits::start(&manager, ask.wait);
    let acquiring = Acquiring { manager, ask, limits };
    if acquiring.ask.wait.is_zero() {
        return acquiring.once().await;
    }
    acquiring.patiently().await
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

struct Acquiring {
    manager: Arc<Inner>,
    ask: Ask,
    limits: Limits,
}

impl Acquiring {
    /// `wait = none`: whoever is in line is before us.
    async fn once(self) -> Result<LockGuard, LockError> {
        match self.attempt(self.limits.overall).await {
            Ok(guard) => Ok(guard),
            Err(denied) => Err(self.error(denied)),
        }
    }

    async fn patiently(self) -> Result<LockGuard, LockError> {
        let mut denied = Denied::Taken(None);
        let mut pause = RETRY;
        if !self.manager.waiting.has_line(&self.ask.lock) {
            match self.attempt(self.limits.overall).await {
                Ok(guard) => return Ok(guard),
                Err(why) => denied = why,
            }
        }
        let place = self.manager.waiting.join(&self.ask.lock);
        loop {
            let now = self.manager.engine.clock().now();
            let look_at = match &denied {
                Denied::Fault(fault) if !fault.passing => return Err(self.error(denied)),
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
                return Err(self.error(denied));
            }
            denied = match self.attempt(self.limits.overall).await {
                Ok(guard) => {
                    place.served();
                    return Ok(guard);
                }
                Err(why) => self.heavier(denied, why),
            };
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
            let now = clock.now();
            if now >= self.limits.wait {
                return false;
            }
            if !news && place.is_head() {
                return true;
            }
        }
    }

    /// A look that was cut short because `wait` ended says less than the "taken" before it.
    fn heavier(&self, before: Denied, now: Denied) -> Denied {
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
    async fn attempt(&self, limit: Moment) -> Result<LockGuard, Denied> {
        let manager = &self.manager;
        if manager.is_closed() {
            return Err(Denied::Fault(Fault::closed()));
        }
        let engine = &manager.engine;
        let token = manager.owner.issue();
        let claim = Claim::new(self.ask.lock.clone(), token, self.ask.ttl, self.ask.renew);
        let attempt = Attempt::new(manager.releaser.clone(), claim);
        let asked = engine.store.clone().try_acquire(attempt.claim.clone(), limit);
        match asked.await {
            Ok(Answer::Granted { fence, sent }) => attempt.granted(self, fence, sent),
            Ok(Answer::Taken { rest }) => {
                attempt.denied();
                Err(Denied::Taken(rest))
            }
            Err(fault) => Err(Denied::Fault(fault)),
        }
    }

    fn error(&self, denied: Denied) -> LockError {
        let lock = &*self.ask.name;
        match denied {
            Denied::Fault(_) if self.manager.is_closed() => LockError::Closed,
            Denied::Fault(fault) => fault.into_error(Some(lock)),
            Denied::Taken(retry_after) => {
                LockError::Busy { lock: Box::new(lock.clone()), retry_after }
            }
        }
    }
}

/// A token that may own the lock. Dropped before it is known, it is released.
struct Attempt {
    releaser: Releaser,
    claim: Arc<Claim>,
    open: bool,
}

impl Attempt {
    fn new(releaser: Releaser, claim: Claim) -> Self {
        Self { releaser, claim: Arc::new(claim), open: true }
    }

    /// The store has said no: there is nothing to release.
    fn denied(mut self) {
        self.open = false;
    }

    fn granted(mut self, by: &Acquiring, fence: u64, sent: Moment) -> Result<LockGuard, Denied> {
        let engine = &by.manager.engine;
        let clock = engine.clock();
        let tended = engine.store.is_remote();
        let endless = self.claim.renewed && !tended;
        let end = if endless { Moment::NEVER } else { deadline(sent, self.claim.ttl) };
        if clock.now() >= end {
            // Dropping `self` gives it back.
            let text = "its answer took longer than the lock's ttl";
            return Err(Denied::Fault(Fault::passing(BackendKind::TimedOut, text)));
        }
        self.open = false;
        let lease = Lease::start(
            by.ask.name.clone(),
            self.claim.clone(),
            fence,
            end,
            engine.schedule.clone(),
            clock,
            tended,
        );
        let guard = LockGuard::new(by.manager.clone(), lease);
        if by.manager.is_closed() {
            // Closed between the try and here: close() may have looked before the lease was there.
            return Err(Denied::Fault(Fault::closed()));
        }
        Ok(guard)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.open {
            self.releaser.let_go(self.claim.clone());
        }
    }
}
