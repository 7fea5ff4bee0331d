//! The guard: a lock that is held, or several, as the user sees it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::collections::OneOrMany;
use distlock_core::line::{Finished, Freeing, Line, Loss};
use distlock_core::name::LockName;
use distlock_core::select::{any, until};
use distlock_core::store::{Owned, Renewal, Renewed};

use super::effects::{Live, renewal};
use super::lease::Lease;
use super::locks::Locks;
use super::release::{Releasing, not_ours};
use super::services::Services;
use super::table::LockTable;
use crate::engine::alarm::Alarm;
use crate::error::{IntoLockError, LockError};
use crate::observe::{LeaseEvent, Listening, Verb};
use crate::options::{OnLost, Release};
use crate::ranges::check_ttl;

/// A held lock, or several. It is renewed in the background until it is released or dropped.
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// assert!(guard.is_held());
///
/// // … work, in steps that each check whether the lock is still held …
///
/// guard.release().await?;
/// assert!(locks.inspect("order:42").await?.is_free());
/// # Ok(())
/// # }
/// ```
///
/// A guard does not stop the work when its lease is lost, as [`LockRequest::run`](crate::LockRequest::run)
/// does: check [`is_held`](Self::is_held) before each step, race the work against [`lost`](Self::lost), or
/// give the [`fencing_token`](Self::fencing_token) to each write.
///
/// It is `Send` and may be moved to another task, which then holds the lock.
///
/// # `let _ = …` frees the lock at once
///
/// `let _ = locks.lock("order:42").acquire().await?;` drops the guard in the same statement, although
/// the compiler proposes it for a value that is not used. Bind the guard to a name: `let _guard = …`
/// holds the lock until the end of the block.
///
/// # Dropping a guard does not wait
///
/// `Drop` sends the release and returns. The manager's thread waits for the answer and retries, also
/// outside a runtime and while a runtime shuts down. A program that ends right after the drop may end
/// before the command is sent; then the lock is free after its `ttl`. To wait for the answer, use
/// [`release`](Self::release); at the end of a program, use [`LockManager::close`](crate::LockManager::close).
#[must_use = "if unused the lock is freed at once: bind it to a name, `let _guard = …`; with `let _ = …` it is freed at once, too"]
pub struct LockGuard {
    pub(super) locks: Arc<Locks>,
    on_lost: OnLost,
    /// How the lock of a body is released.
    release: Release,
    /// In stored order: the leases that this guard releases, then those it joined.
    pub(super) leases: OneOrMany<Arc<Lease>>,
    /// How many of them this guard releases; the others are held by an enclosing call.
    pub(super) owned: usize,
}

impl LockGuard {
    /// Returns the locked key, without the prefix; of several, the first in the order of their text.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// assert_eq!(locks.lock("order:42").acquire().await?.key(), "order:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// Returns the locked keys, each once, in the order of their text.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock_all(["account:9", "account:10"]).acquire().await?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["account:10", "account:9"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.in_order().map(|lease| lease.name().key())
    }

    /// Returns a number that is larger than that of every earlier holder of the lock. Of several locks, it
    /// returns the largest of their numbers.
    ///
    /// Give it to the resource that the lock protects, and let the resource refuse a token smaller than one it
    /// has seen. This stops the late write of a former holder: one that was paused between its last check and
    /// its write, or whose lock was lost with the store's data.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let former = locks.lock("order:42").acquire().await?.fencing_token();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// assert!(guard.fencing_token() > former);
    /// // UPDATE orders SET …, fence = $token WHERE id = 42 AND fence <= $token
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// After the store has lost its data, a lease may be handed over within a process until the loss is
    /// noticed, at the next renewal or within a second. The token of such a holder is smaller than that of a
    /// newer holder in another process.
    pub fn fencing_token(&self) -> u64 {
        self.leases.iter().map(|lease| lease.fencing_token()).max().unwrap_or_default()
    }

    /// Returns the fencing token of each key, in the order of [`keys`](Self::keys): for resources that each
    /// check their own.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock_all(["account:3", "account:7"]).acquire().await?;
    /// for (account, token) in guard.keys().zip(guard.fencing_tokens()) {
    ///     assert!(account.starts_with("account:") && token <= guard.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_tokens(&self) -> impl Iterator<Item = u64> {
        self.in_order().map(|lease| lease.fencing_token())
    }

    fn in_order(&self) -> impl Iterator<Item = &Lease> {
        let mut leases: Vec<&Lease> = self.leases.iter().map(|lease| &**lease).collect();
        leases.sort_by(|a, b| a.name().stored().cmp(b.name().stored()));
        leases.into_iter()
    }

    /// Returns how long the lease still runs if it is not renewed; of several, the shortest. It is zero once the
    /// lease is lost.
    ///
    /// A renewal raises it again. So it tells how long the holder survives an outage that begins now.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let ttl = Duration::from_secs(30);
    /// let guard = locks.lock("import").ttl(ttl).renew(false).acquire().await?;
    /// tokio::time::sleep(Duration::from_secs(10)).await;
    /// assert!(guard.remaining() <= Duration::from_secs(20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.leases.iter().map(|lease| lease.remaining()).min().unwrap_or_default()
    }

    /// Returns whether the lock is held at this moment; of several, whether every one is. It may be lost the
    /// moment after: for a write that must not be late, use the [`fencing_token`](Self::fencing_token).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("import").acquire().await?;
    /// let mut imported = 0;
    /// while guard.is_held() && imported < 3 {
    ///     imported += 1;
    /// }
    /// assert_eq!(imported, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        self.leases.iter().all(|lease| lease.is_held())
    }

    /// Extends the lease to at least `ttl` from now; it is never shortened, nor extended past `max_hold`.
    ///
    /// With renewal, which is the default, it is rarely needed: before a step that must survive a longer
    /// outage than the others. With `renew(false)` it is how a holder gets more time.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let second = Duration::from_secs(1);
    /// let guard = locks.lock("import").ttl(second).renew(false).acquire().await?;
    /// guard.extend(60 * second).await?;
    /// tokio::time::sleep(2 * second).await;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock is no longer held; [`Backend`](LockError::Backend) if the store
    /// did not confirm (the lease ends when it would have); [`InvalidOption`](LockError::InvalidOption) if
    /// `ttl` is not within 10 ms and 365 days.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lease may or may not have been extended.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        check_ttl(ttl)?;
        self.table().home().check()?;
        if !self.is_held() {
            return Err(self.lost_error(false));
        }
        let table = self.table();
        let renewals: Option<Vec<_>> =
            self.leases.iter().map(|lease| extension(table, lease, ttl)).collect();
        let Some(renewals) = renewals else { return Err(self.lost_error(false)) };
        let Services { clock, store, observers, .. } = &table.services;
        let op = store.clone().renew(renewals.clone());
        let renewed = observers.timed(Verb::Renew, (*clock, clock.now()), op).await;
        let Renewed { sent, answers } =
            renewed.map_err(|fault| fault.into_error(Some(self.leases[0].name())))?;
        let mut doubt = None;
        for ((lease, renewal), answer) in self.leases.iter().zip(&renewals).zip(answers) {
            match answer {
                Ok(Owned::Yes { .. }) => table.change_known(&lease.lock, |line, effects| {
                    line.extended(lease.place(), sent, renewal.ttl, effects);
                }),
                Ok(Owned::No) => drop(table.taken_away(&renewal.owner, Loss::Taken)),
                Err(fault) => doubt = Some(fault.into_error(Some(lease.name()))),
            }
        }
        match doubt {
            _ if !self.is_held() => Err(self.lost_error(false)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Resolves when the lease is lost; of several, when the first one is. It does not resolve while the
    /// lock is held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let work = std::future::pending::<()>();
    /// let guard = locks.lock("import").acquire().await?;
    /// locks.force_release("import").await?;
    /// let outcome = tokio::select! {
    ///     () = guard.lost() => "stopped",
    ///     () = work => "done",
    /// };
    /// assert_eq!(outcome, "stopped");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Once the deadline has passed, it is ready at its next poll even if the loss was not noticed before,
    /// because the machine was suspended, for example.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it may be polled, dropped and called again.
    pub async fn lost(&self) {
        if !self.table().home().is_here() {
            return;
        }
        let mut noticed = pin!(self.lost_noticed());
        poll_fn(|cx| {
            if self.leases.iter().any(|lease| self.table().is_lost(lease)) {
                return Poll::Ready(());
            }
            noticed.as_mut().poll(cx)
        })
        .await;
    }

    /// Releases the lock and waits for the store's answer; several locks in reverse order. With `min_hold`
    /// the store keeps the lock until that time is over.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// assert!(locks.inspect("order:42").await?.is_free());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lease was lost before, so that others may have had the lock
    /// meanwhile; [`Backend`](LockError::Backend) if the store did not confirm within `command_timeout`: the
    /// release is retried in the background until the lock has expired by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the release continues in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.release_all().await
    }
}

/// How a guard is put together.
impl LockGuard {
    pub(super) fn new(locks: Arc<Locks>, on_lost: OnLost) -> Self {
        let release = Release::Wait;
        Self { locks, on_lost, release, leases: OneOrMany::none(), owned: 0 }
    }

    /// Makes a guard of one lease.
    #[inline]
    pub(super) fn of(
        locks: Arc<Locks>,
        (on_lost, release): (OnLost, Release),
        lease: Arc<Lease>,
    ) -> Self {
        Self { locks, on_lost, release, leases: OneOrMany::One(lease), owned: 1 }
    }

    /// Sets how the lock of a body is released.
    pub(super) fn releasing(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Adds a lease, which is released with the others.
    pub(super) fn add(&mut self, lease: Arc<Lease>) {
        self.leases.insert(self.owned, lease);
        self.owned += 1;
    }

    /// Takes over the leases of another guard, which are released with the others.
    pub(super) fn take_over(&mut self, mut other: Self) {
        other.owned = 0;
        for lease in std::mem::replace(&mut other.leases, OneOrMany::none()) {
            self.add(lease);
        }
    }

    /// Takes part in a lock that an enclosing call holds and will release.
    pub(super) fn join(&mut self, outer: Arc<Lease>) {
        self.leases.push(outer);
    }

    /// Notes that no lease is missing any more; from here on its `min_hold` counts. `queued` says whether
    /// observers know that the call has waited.
    #[inline(always)]
    pub(super) fn complete(&self, queued: bool) {
        match &self.leases {
            OneOrMany::One(lease) if self.owned == 1 => complete(self.table(), lease),
            _ => self.complete_all(),
        }
        if let Some(listening) = self.table().services.observers.listening() {
            self.report_acquired(listening, queued);
        }
    }

    fn complete_all(&self) {
        let table = self.table();
        self.leases[..self.owned].iter().for_each(|lease| complete(table, lease));
        if self.leases.len() > 1 {
            // A later holder of one of them must have a higher token than this guard has.
            let fencing_token = self.fencing_token();
            for lease in self.leases.iter() {
                let outdo = |line: &mut Line<Live>| line.outdo(lease.place(), fencing_token);
                table.change_known(&lease.lock, |line, _| outdo(line));
            }
        }
    }

    fn report_acquired(&self, listening: Listening, queued: bool) {
        let observers = &self.table().services.observers;
        for (index, lease) in self.leases[..self.owned].iter().enumerate() {
            let lock = (lease.name().as_ref(), &lease.account);
            let known = (lease.request.asked, lease.fencing_token());
            observers.acquired(listening, lock, known, (queued, index));
        }
        if let (0, Some(outer)) = (self.owned, self.leases.first()) {
            observers.joined(listening, outer.name(), outer.fencing_token());
        }
    }
}

/// How a body is run under it.
impl LockGuard {
    fn table(&self) -> &Arc<LockTable> {
        &self.locks.table
    }

    pub(crate) fn leases(&self) -> &[Arc<Lease>] {
        &self.leases
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// Shows an event of all its leases to the probe of a test, if there is one.
    #[inline]
    pub(super) fn show(&self, event: LeaseEvent) {
        let observers = &self.table().services.observers;
        self.leases.iter().for_each(|lease| lease.show(observers, event));
    }

    /// Returns the error for the caller when a lease is lost: that of the first lease that is. A body may have
    /// been `stopped` for it.
    pub(crate) fn lost_error(&self, stopped: bool) -> LockError {
        let lost = self.leases.iter().find(|lease| !lease.is_held()).unwrap_or(&self.leases[0]);
        self.table().is_lost(lost);
        lost.lost_error(stopped)
    }

    /// Returns which of its locks was lost before anything was done under it; an error if it is one under
    /// which the enclosing call has done something.
    pub(super) fn lost_before_use(&self) -> Result<Arc<LockName>, LockError> {
        let (own, joined) = self.leases.split_at(self.owned);
        match own.iter().find(|lease| !lease.is_held()) {
            Some(lost) if joined.iter().all(|outer| outer.is_held()) => Ok(lost.name().clone()),
            _ => Err(self.lost_error(false)),
        }
    }

    /// Returns the error for a caller whose body has not begun.
    pub(crate) fn not_begun_error(&self) -> LockError {
        match self.lost_before_use() {
            Ok(lost) => self.locks.busy(&lost, None),
            Err(error) => error,
        }
    }

    /// Resolves when a lease was found to be lost, for a caller that looks at the clock by itself.
    pub(super) async fn lost_noticed(&self) {
        if let [lease] = &*self.leases {
            return lost(lease, self.table()).await;
        }
        any(self.leases.iter().map(|lease| lost(lease, self.table()))).await;
    }
}

/// Resolves when a lease is found to be lost; never if it is released first.
async fn lost(lease: &Arc<Lease>, table: &Arc<LockTable>) {
    let Services { alarms, clock, by_engine, .. } = &table.services;
    loop {
        let mut changed = pin!(lease.changed());
        // Enabled before the state is read, or an end between the two would be missed.
        changed.as_mut().enable();
        if lease.loss().is_some() {
            return;
        }
        // Where no engine looks at lines, the holder watches the deadline.
        let watched = if *by_engine { Moment::NEVER } else { lease.deadline() };
        if until(changed, Alarm::at(alarms, *clock, watched)).await.is_none() {
            table.is_lost(lease);
        }
    }
}

/// Notes that the call has the lock, and all others that it asked for.
#[inline]
fn complete(table: &Arc<LockTable>, lease: &Arc<Lease>) {
    lease.put_in_hand();
    lease.show(&table.services.observers, LeaseEvent::Held);
    if lease.request.part_until.is_some() {
        table.change_known(&lease.lock, |line, effects| {
            line.complete(lease.place(), table.services.clock.now(), effects);
        });
    }
}

/// Returns the renewal that extends a lease; `None` if it is not held any more.
fn extension(table: &LockTable, lease: &Lease, ttl: Duration) -> Option<Renewal> {
    let now = table.services.clock.now();
    let extension = |line: &Line<Live>| line.extension(lease.place(), ttl, now);
    table.read(lease.lock.stored(), extension)?.map(renewal)
}

/// How its locks are released: awaited, after a body, in the background, or dropped.
impl LockGuard {
    /// Releases in place: what is left is a guard of nothing.
    pub(super) async fn release_all(&mut self) -> Result<(), LockError> {
        let table = &self.locks.table;
        let Services { clock, home, .. } = &table.services;
        let now = clock.now();
        home.check_at(*clock, now)?;
        let owned = std::mem::take(&mut self.owned);
        match &self.leases {
            OneOrMany::One(lease) if owned == 1 => {
                let finished = table.finish(lease, now);
                // The lock was handed over to another caller of this process, and that is all.
                if finished.was_held && finished.release.is_none() && !lease.account.is_open() {
                    return Ok(());
                }
                Ending::of(lease.clone(), finished, table).confirmed().await
            }
            leases => {
                let leases = leases[..owned].to_vec();
                let ending = |lease| {
                    let finished = table.finish(&lease, now);
                    Ending::of(lease, finished, table)
                };
                let endings = leases.into_iter().rev().map(ending).collect();
                Box::pin(all_confirmed(endings)).await
            }
        }
    }

    /// Releases the lock of a body that has returned: its result stands, a failure is only reported.
    pub(crate) async fn release_quietly(&mut self) {
        match self.release {
            Release::Wait => {
                let Some(lease) = self.leases.first().cloned() else { return };
                if let Err(error) = self.release_all().await {
                    let Services { home, observers, .. } = &self.table().services;
                    if home.is_here() {
                        observers.released_late(lease.name(), error, false);
                    }
                }
            }
            Release::Background => self.release_unawaited(),
        }
    }

    /// Sends the release, and has its failure reported.
    fn release_unawaited(&mut self) {
        let table = self.table().clone();
        let Services { clock, observers, .. } = &table.services;
        let leases = self.take_owned();
        for lease in leases.iter().rev() {
            let Finished { was_held, release } = table.finish(lease, clock.now());
            if !was_held {
                observers.released_late(lease.name(), lease.lost_error(false), false);
            }
            match release {
                Some(freeing) if was_held => table.release_unawaited(freeing),
                Some(Freeing { token, keep, .. }) => table.release_in_background(token, keep),
                None => {}
            }
        }
        self.report_released(&leases);
    }

    /// Reports to observers that these leases were given back, once all of them were.
    fn report_released(&self, leases: &[Arc<Lease>]) {
        for lease in leases.iter().rev() {
            self.table().services.observers.released(lease.name(), &lease.account, false);
        }
    }

    /// Releases the lock in the background; its command is on its way when this returns.
    pub(crate) fn end_in_background(&mut self) {
        // Nearly every guard that is dropped was released.
        if self.owned == 0 {
            return;
        }
        let leases = self.take_owned();
        for lease in leases.iter().rev() {
            self.table().end_in_background(lease);
        }
        self.report_released(&leases);
    }

    /// Takes out the leases that this guard is to release: release the last one first.
    fn take_owned(&mut self) -> OneOrMany<Arc<Lease>> {
        // A forked child has a copy of its parent's lock, and must not release it.
        let own = self.owned > 0 && self.table().home().is_here();
        let owned = if own { self.owned } else { 0 };
        self.owned = 0;
        let mut leases = std::mem::replace(&mut self.leases, OneOrMany::none());
        leases.truncate(owned);
        leases
    }
}

/// A lease that was given back. If it is dropped, its release continues by itself, and is reported to observers.
struct Ending<'a> {
    lease: Arc<Lease>,
    table: &'a Arc<LockTable>,
    was_held: bool,
    confirmed: bool,
    /// `None` if the lock was handed over, or the engine releases it.
    release: Option<Releasing>,
}

impl<'a> Ending<'a> {
    #[inline]
    fn of(lease: Arc<Lease>, finished: Finished<Live>, table: &'a Arc<LockTable>) -> Self {
        let Finished { was_held, release } = finished;
        let release = release.map(|freeing| table.release(freeing));
        Self { lease, table, was_held, confirmed: false, release }
    }

    /// Waits for the store's answer, if there is anything to confirm.
    async fn confirmed(&mut self) -> Result<(), LockError> {
        let Self { lease, table, was_held, confirmed, release } = self;
        let outcome = match release {
            None if *was_held => Ok(()),
            None => Err(lease.lost_error(false)),
            Some(release) => match (&mut *release).await {
                Ok(_) if !*was_held => Err(lease.lost_error(false)),
                Ok(freed) => match not_ours(release.freeing(), &freed, table.services.clock) {
                    None => Ok(()),
                    Some(reason) => Err(LockError::lost(lease.name(), reason, false)),
                },
                Err(fault) => Err(fault.into_error(Some(lease.name()))),
            },
        };
        *confirmed = outcome.is_ok();
        outcome
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // Sends what was not sent.
        drop(self.release.take());
        let Self { lease, table, confirmed, .. } = self;
        let Services { home, observers, .. } = &table.services;
        // Without observers it never is. A forked child has no answer to wait for.
        if lease.account.is_open() && (*confirmed || home.is_here()) {
            observers.released(lease.name(), &lease.account, *confirmed);
        }
    }
}

/// Waits for the answers to the releases of several locks. On the heap: it is the rare path, and would be
/// part of every locked function's future.
async fn all_confirmed(mut endings: Vec<Ending<'_>>) -> Result<(), LockError> {
    // All on their way before the first answer is awaited.
    endings.iter_mut().filter_map(|ending| ending.release.as_mut()).for_each(Releasing::send);
    let mut outcome = Ok(());
    for ending in &mut endings {
        outcome = outcome.and(ending.confirmed().await);
    }
    outcome
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("leases", &self.leases).finish_non_exhaustive()
    }
}
