//! The observers of one manager, and how events reach them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::StoreEvents;
use tracing::Level;

use super::account::Account;
use super::calls::CallTally;
use super::log::{self, Log};
use super::metrics::{Hold, InLine, Metrics, RecorderScope};
use super::observer::{
    Acquired, Command, Connection, Lost, Observer, Refused, Released, ReleasedLate, Renewed, Verb,
    Via, Waiting,
};
use super::probe::Probe;
use crate::error::{LockError, LostReason};

/// The observers of one manager's locks. Clones are the same observers.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<ObserverSet>);

/// The parts of [`Observers`].
pub(crate) struct ObserverSet {
    /// The log, then those of the user.
    all: Vec<Arc<dyn Observer>>,
    metrics: Metrics,
    tally: CallTally,
    /// Only the test kit sets one.
    probe: Option<Arc<dyn Probe>>,
}

impl Default for ObserverSet {
    fn default() -> Self {
        let (metrics, tally) = Default::default();
        Self { all: vec![Arc::new(Log)], metrics, tally, probe: None }
    }
}

impl std::ops::Deref for Observers {
    type Target = ObserverSet;

    fn deref(&self) -> &ObserverSet {
        &self.0
    }
}

impl Observers {
    /// Returns the same observers for a new manager, whose locks are kept in this kind of `store`.
    pub(crate) fn of_manager(self, store: &'static str) -> Self {
        let (all, probe) = (self.all.clone(), self.probe.clone());
        let own = ObserverSet { all, probe, ..ObserverSet::default() };
        shield(|| own.metrics.started(store));
        Self(Arc::new(own))
    }

    /// Adds an observer of the user.
    pub(crate) fn add(&mut self, observer: impl Observer) {
        let mut all = self.all.clone();
        all.push(Arc::new(observer));
        let probe = self.probe.clone();
        self.0 = Arc::new(ObserverSet { all, probe, ..ObserverSet::default() });
    }

    /// Sets the probe of the test kit.
    #[cfg(feature = "test-util")]
    pub(crate) fn set_probe(&mut self, probe: Arc<dyn Probe>) {
        let (all, probe) = (self.all.clone(), Some(probe));
        self.0 = Arc::new(ObserverSet { all, probe, ..ObserverSet::default() });
    }

    /// Returns the probe of the test kit, if there is one.
    #[inline]
    pub(crate) fn probe(&self) -> Option<&dyn Probe> {
        self.probe.as_deref()
    }

    /// Returns the counts of calls, which are made only while a client watches.
    pub(crate) fn tally(&self) -> &CallTally {
        &self.tally
    }

    /// Returns the observers of the user. Calls are reported to these alone, because the log has no line for
    /// a call.
    fn users(&self) -> &[Arc<dyn Observer>] {
        &self.all[1..]
    }

    #[inline]
    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        for observer in self.users() {
            shield(|| tell(&**observer));
        }
    }

    /// Reports to all observers in the background, and the log among them. `level` is the event's level in the log.
    fn tell_later(&self, level: Level, tell: impl Fn(&dyn Observer) + Send + 'static) {
        if !self.users().is_empty() || log::is_logged(level) {
            let all = self.clone();
            log::report(move || {
                for observer in &all.all {
                    shield(|| tell(&**observer));
                }
            });
        }
    }

    /// Returns the receivers of the event that a call has a lock, or `None` if there are none.
    #[inline]
    pub(crate) fn listening(&self) -> Option<Listening> {
        let recorder = self.metrics.recorder();
        let has_recorder = recorder != RecorderScope::None;
        let any = has_recorder || self.tally.is_on() || !self.users().is_empty();
        any.then_some(Listening(recorder))
    }

    /// Reports that a call waits, until the returned value is dropped. It waits for the store in an `outage`,
    /// and for other holders otherwise.
    #[inline]
    pub(crate) fn waiting(&self, lock: &LockName, outage: bool) -> InLine {
        if !self.users().is_empty() {
            self.tell(|observer| observer.waiting(lock, &Waiting { outage }));
        }
        shield(|| self.metrics.waiting(lock)).unwrap_or_default()
    }

    /// Reports that a call has a lock. `index` counts the locks that the call asked for.
    #[inline]
    pub(crate) fn acquired(
        &self,
        Listening(recorder): Listening,
        (lock, account): (&LockName, &Account),
        (asked, fencing_token): (Moment, u64),
        (queued, index): (bool, usize),
    ) {
        if self.tally.is_on() && index == 0 {
            let since = account.since();
            self.tally.count(lock, since.since(asked), since);
        }
        let has_metrics = recorder != RecorderScope::None;
        if !has_metrics && self.users().is_empty() {
            return;
        }
        let tried = account.take_try();
        account.open();
        let waited = account.since().since(asked);
        // A call waits once, whatever the number of its locks, so that gauges which count `queued` stay right.
        let queued = queued && index == 0;
        let event = Acquired::new(waited, account.via(), fencing_token, queued, index);
        if has_metrics {
            shield(|| {
                if let Some(took) = tried {
                    self.metrics.command(recorder, Verb::Set, took, true);
                }
                self.metrics.acquired(lock, recorder, &account.hold, &event);
            });
        }
        if !self.users().is_empty() {
            if let Some(took) = tried {
                self.tell_command(Verb::Set, took, true);
            }
            self.tell(|observer| observer.acquired(lock, &event));
        }
    }

    /// Reports that a call has joined the lock of an outer call.
    pub(crate) fn joined(
        &self,
        Listening(recorder): Listening,
        lock: &LockName,
        fencing_token: u64,
    ) {
        let event = Acquired::new(Duration::ZERO, Via::Outer, fencing_token, false, 0);
        shield(|| self.metrics.acquired(lock, recorder, &Hold::default(), &event));
        self.tell(|observer| observer.acquired(lock, &event));
    }

    /// Reports that a call has ended without a lock. Without an `error` it was cancelled.
    pub(crate) fn refused(
        &self,
        lock: &LockName,
        waited: Duration,
        error: Option<&LockError>,
        queued: bool,
    ) {
        let event = Refused::new(waited, error, queued);
        shield(|| self.metrics.refused(lock, &event));
        self.tell(|observer| observer.refused(lock, &event));
    }

    /// Reports that a holder has released its lock.
    pub(crate) fn released(&self, lock: &LockName, account: &Account, confirmed: bool) {
        if account.close() {
            self.ended(account);
            if !self.users().is_empty() {
                let (held, lost) = (account.held(), account.was_lost());
                let event = Released { held, confirmed, lost };
                self.tell(|observer| observer.released(lock, &event));
            }
        }
    }

    fn ended(&self, account: &Account) {
        if !account.hold.is_empty() {
            shield(|| self.metrics.ended(&account.hold, account.since(), account.held()));
        }
    }

    /// Reports that a holder has lost its lease.
    pub(crate) fn lost(
        &self,
        lock: &Arc<LockName>,
        account: &Account,
        (reason, fencing_token): (LostReason, u64),
        now: Moment,
    ) {
        account.ended(now, true);
        self.ended(account);
        shield(|| self.metrics.lost(lock, &account.hold, reason));
        let (lock, held) = (lock.clone(), now.since(account.since()));
        let event = Lost { held, reason, fencing_token };
        self.tell_later(Level::WARN, move |observer| observer.lost(&lock, &event));
    }

    /// Returns whether anybody wants to know how long a hold [lasts](Self::lasts).
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics.recorder() != RecorderScope::None
    }

    /// Reports the age of the oldest hold of a lock.
    pub(crate) fn lasts(&self, account: &Account, now: Moment) {
        let since = account.since();
        shield(|| self.metrics.lasts(&account.hold, since, now.since(since)));
    }

    /// Reports that a lease was renewed.
    pub(crate) fn renewed(&self, lock: &Arc<LockName>) {
        shield(|| self.metrics.renewed(lock, true));
        if !self.users().is_empty() {
            let lock = lock.clone();
            self.tell_later(Level::TRACE, move |observer| {
                observer.renewed(&lock, &Renewed { ok: true })
            });
        }
    }

    /// Reports that a renewal has failed.
    pub(crate) fn renew_failed(
        &self,
        lock: &Arc<LockName>,
        error: impl fmt::Display + Send + 'static,
    ) {
        shield(|| self.metrics.renewed(lock, false));
        let lock = lock.clone();
        if log::is_logged(Level::DEBUG) {
            let lock = lock.clone();
            log::report(move || log::renew_failed(&lock, &error));
        }
        if !self.users().is_empty() {
            self.tell_later(Level::TRACE, move |observer| {
                observer.renewed(&lock, &Renewed { ok: false })
            });
        }
    }

    /// Reports that a body has returned, but its lock could not be released at once.
    pub(crate) fn released_late(&self, lock: &Arc<LockName>, error: LockError, given_up: bool) {
        // The metric counts bodies. Giving up is the end of a release that was counted when it began.
        if !given_up {
            shield(|| self.metrics.released_late(lock));
        }
        let lock = lock.clone();
        let event = ReleasedLate { error, given_up };
        self.tell_later(Level::WARN, move |observer| observer.released_late(&lock, &event));
    }

    /// Reports a change of a connection, or a mistake in the set-up that it has revealed.
    pub(crate) fn connection(&self, event: Connection) {
        let level = match event {
            Connection::Denied { .. } | Connection::MayEvict { .. } => Level::WARN,
            Connection::Connected | Connection::Disconnected => Level::TRACE,
        };
        if level == Level::WARN || !self.users().is_empty() {
            self.tell_later(level, move |observer| observer.connection(&event));
        }
    }

    /// Returns these observers as a store reports to them.
    pub(crate) fn events(&self) -> Arc<dyn StoreEvents> {
        Arc::new(self.clone())
    }

    /// Reports that a connection was made, lost, or is no longer wanted (`None`).
    pub(super) fn link(&self, was_up: Option<bool>, is_up: Option<bool>) {
        shield(|| self.metrics.link(was_up, is_up));
        match (was_up == Some(true), is_up == Some(true)) {
            (false, true) => self.connection(Connection::Connected),
            (true, false) => self.connection(Connection::Disconnected),
            _ => {}
        }
    }

    /// Returns whether anybody wants to know how long a command takes.
    #[inline]
    pub(crate) fn time_commands(&self) -> bool {
        self.metrics.has_been_on() || !self.users().is_empty()
    }

    /// Reports how long a command took, and whether it was answered.
    pub(crate) fn command(&self, verb: Verb, took: Duration, ok: bool) {
        shield(|| self.metrics.command(self.metrics.recorder(), verb, took, ok));
        if !self.users().is_empty() {
            self.tell_command(verb, took, ok);
        }
    }

    #[cold]
    fn tell_command(&self, verb: Verb, took: Duration, ok: bool) {
        let event = Command { command: verb.as_str(), took, ok };
        self.tell(|observer| observer.command(&event));
    }

    /// Reports the attempt that has acquired a lease, if the lease itself is not reported at once.
    pub(crate) fn tried(&self, account: &Account) {
        if let Some(took) = account.take_try() {
            self.command(Verb::Set, took, true);
        }
    }

    /// Reports a command whose answer has just arrived.
    #[inline]
    pub(crate) fn answered(&self, verb: Verb, (clock, sent): (Clock, Moment), ok: bool) {
        if self.time_commands() {
            self.command(verb, clock.now().since(sent), ok);
        }
    }

    /// Wraps an operation so that its duration since `sent` is reported. The wrapper is a second allocation, so the
    /// commands of every lock use [`answered`](Self::answered) instead.
    pub(crate) fn timed<'a, T: 'a, E: 'a>(
        &self,
        verb: Verb,
        (clock, sent): (Clock, Moment),
        op: BoxedOp<'a, T, E>,
    ) -> BoxedOp<'a, T, E> {
        if !self.time_commands() {
            return op;
        }
        let observers = self.clone();
        Box::pin(async move {
            let answer = op.await;
            observers.answered(verb, (clock, sent), answer.is_ok());
            answer
        })
    }
}

/// Proof that at least one receiver exists, with the recorder of metrics among them.
#[derive(Clone, Copy)]
pub(crate) struct Listening(RecorderScope);

/// An operation of a store.
type BoxedOp<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("added", &self.users().len()).finish()
    }
}
