//! Reports of what happens to locks: the trait [`Observer`] and its events.
//!
//! The log is an observer that every manager has. The guide's page on observability lists its events, and
//! when to be alerted of which.
// What a call brings about is reported in its own task. What is lost or fails in the background is reported
// on the reporter's thread. Everything is reported after it has happened and while no mutex is held, and a
// panic of an observer ends here.

mod account;
mod calls;
#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod kept;
mod link;
mod log;
#[cfg(feature = "metrics")]
mod metric_table;
#[cfg_attr(not(feature = "metrics"), path = "metrics_off.rs")]
pub(crate) mod metrics;
mod observer;
#[cfg(feature = "metrics")]
mod recorder;
#[cfg(feature = "metrics")]
mod register;
mod reporter;
mod span;
mod tally;
mod verb;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use crate::clock::{Clock, Moment};
use crate::error::LockError;
use crate::name::LockName;
use crate::shield::shield;
use log::Log;
use metrics::{Hold, Metrics, Recorder};

pub use crate::error::LostReason;
pub(crate) use account::Account;
#[doc(hidden)]
pub use calls::Calls;
#[cfg(any(feature = "axum", feature = "actix"))]
pub(crate) use log::{answered, body_too_late};
pub(crate) use log::{not_returned, skipped, term_failed};
pub(crate) use metrics::InLine;
pub use observer::{
    Acquired, Command, Connection, Lost, Observer, Refused, Released, ReleasedLate, Renewed, Via,
    Waiting,
};
pub(crate) use span::{WaitSpan, in_acquire_span};
pub(crate) use tally::Tally;
pub(crate) use verb::Verb;

/// The observers of one manager's locks.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<ObserverSet>);

pub(crate) struct ObserverSet {
    /// Those of the user, behind the log.
    all: Vec<Arc<dyn Observer>>,
    metrics: Metrics,
    tally: Tally,
}

impl Default for ObserverSet {
    fn default() -> Self {
        let (metrics, tally) = Default::default();
        Self { all: vec![Arc::new(Log)], metrics, tally }
    }
}

impl std::ops::Deref for Observers {
    type Target = ObserverSet;

    fn deref(&self) -> &ObserverSet {
        &self.0
    }
}

impl Observers {
    /// The same for a manager of its own, whose locks are kept in such a `store`.
    pub(crate) fn of_manager(self, store: &'static str) -> Self {
        let own = ObserverSet { all: self.all.clone(), ..ObserverSet::default() };
        shield(|| own.metrics.started(store));
        Self(Arc::new(own))
    }

    /// One more.
    pub(crate) fn add(&mut self, observer: impl Observer) {
        let mut all = self.all.clone();
        all.push(Arc::new(observer));
        self.0 = Arc::new(ObserverSet { all, ..ObserverSet::default() });
    }

    /// What is counted for clients that watch.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Those that every call is reported to; the log has no line for it.
    fn users(&self) -> &[Arc<dyn Observer>] {
        &self.all[1..]
    }

    #[inline]
    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        for observer in self.users() {
            shield(|| tell(&**observer));
        }
    }

    /// Reports to all in the background; `level` is that of the event in the log.
    fn tell_later(&self, level: Level, tell: impl Fn(&dyn Observer) + Send + 'static) {
        if !self.users().is_empty() || reporter::is_logged(level) {
            let all = self.clone();
            reporter::report(move || {
                for observer in &all.all {
                    shield(|| tell(&**observer));
                }
            });
        }
    }

    /// The receivers of an event that a call has a lock; `None` if there are none.
    #[inline]
    pub(crate) fn listening(&self) -> Option<Listening> {
        let recorder = self.metrics.recorder();
        let has_recorder = recorder != Recorder::None;
        let any = has_recorder || self.tally.is_on() || !self.users().is_empty();
        any.then_some(Listening(recorder))
    }

    /// Reports that a call begins to wait, until the returned value is dropped: for the store in an `outage`,
    /// otherwise for other holders.
    #[inline]
    pub(crate) fn waiting(&self, lock: &LockName, outage: bool) -> InLine {
        if !self.users().is_empty() {
            self.tell(|observer| observer.waiting(lock, &Waiting { outage }));
        }
        shield(|| self.metrics.waiting(lock)).unwrap_or_default()
    }

    /// A call has a lock, the one of that `index` of those it asked for.
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
        let has_metrics = recorder != Recorder::None;
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

    /// A call takes part in the lock of an outer call.
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

    /// A call has ended without a lock: `None` if it was cancelled.
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

    /// A holder has given its lock back.
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

    /// A lease was lost in the hand of its holder.
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

    /// Whether an observer or the log wants what [lasts](Self::lasts).
    pub(crate) fn has_metrics(&self) -> bool {
        self.metrics.recorder() != Recorder::None
    }

    /// No other lease of the lock has been held for longer.
    pub(crate) fn lasts(&self, account: &Account, now: Moment) {
        let since = account.since();
        shield(|| self.metrics.lasts(&account.hold, since, now.since(since)));
    }

    /// A lease was renewed.
    pub(crate) fn renewed(&self, lock: &Arc<LockName>) {
        shield(|| self.metrics.renewed(lock, true));
        if !self.users().is_empty() {
            let lock = lock.clone();
            self.tell_later(Level::TRACE, move |observer| {
                observer.renewed(&lock, &Renewed { ok: true })
            });
        }
    }

    /// A renewal has failed.
    pub(crate) fn renew_failed(
        &self,
        lock: &Arc<LockName>,
        error: impl fmt::Display + Send + 'static,
    ) {
        shield(|| self.metrics.renewed(lock, false));
        let lock = lock.clone();
        if reporter::is_logged(Level::DEBUG) {
            let lock = lock.clone();
            reporter::report(move || log::renew_failed(&lock, &error));
        }
        if !self.users().is_empty() {
            self.tell_later(Level::TRACE, move |observer| {
                observer.renewed(&lock, &Renewed { ok: false })
            });
        }
    }

    /// A body has returned, but its lock could not be freed as it should.
    pub(crate) fn released_late(&self, lock: &Arc<LockName>, error: LockError, given_up: bool) {
        // Some are given up in the middle of something.
        if !given_up {
            shield(|| self.metrics.released_late(lock));
        }
        let lock = lock.clone();
        let event = ReleasedLate { error, given_up };
        self.tell_later(Level::WARN, move |observer| observer.released_late(&lock, &event));
    }

    /// What became of a connection, or what it has shown.
    pub(crate) fn connection(&self, event: Connection) {
        let level = match event {
            Connection::Denied { .. } | Connection::MayEvict { .. } => Level::WARN,
            Connection::Connected | Connection::Disconnected => Level::TRACE,
        };
        if level == Level::WARN || !self.users().is_empty() {
            self.tell_later(level, move |observer| observer.connection(&event));
        }
    }

    /// Whether it is of interest how long a command takes.
    #[inline]
    pub(crate) fn time_commands(&self) -> bool {
        self.metrics.has_been_on() || !self.users().is_empty()
    }

    /// A command has taken so long, and was answered or was not.
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

    /// Reports the try that a lease came of, where the lease itself is not reported at once.
    pub(crate) fn tried(&self, account: &Account) {
        if let Some(took) = account.take_try() {
            self.command(Verb::Set, took, true);
        }
    }

    /// The same for a command whose answer has come just now.
    #[inline]
    pub(crate) fn answered(&self, verb: Verb, (clock, sent): (Clock, Moment), ok: bool) {
        if self.time_commands() {
            self.command(verb, clock.now().since(sent), ok);
        }
    }

    /// The same operation; how long it took since it was `sent` is reported to observers. Not for what every lock
    /// sends: it takes a second allocation.
    pub(crate) fn timed<'a, T: 'a, E: 'a>(
        &self,
        verb: Verb,
        (clock, sent): (Clock, Moment),
        op: Asked<'a, T, E>,
    ) -> Asked<'a, T, E> {
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

/// At least one receiver exists, and this is the recorder among them, if any.
#[derive(Clone, Copy)]
pub(crate) struct Listening(Recorder);

impl Observers {
    /// These observers as a store reports to them.
    pub(crate) fn events(&self) -> Arc<dyn distlock_core::store::StoreEvents> {
        Arc::new(self.clone())
    }

    /// A connection was made, lost, or is not wanted any more.
    fn link(&self, was_up: Option<bool>, is_up: Option<bool>) {
        shield(|| self.metrics.link(was_up, is_up));
        match (was_up == Some(true), is_up == Some(true)) {
            (false, true) => self.connection(Connection::Connected),
            (true, false) => self.connection(Connection::Disconnected),
            _ => {}
        }
    }
}

/// An operation of a store.
type Asked<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("added", &self.users().len()).finish()
    }
}
