//! Downgrading: a guard that has its lock alone continues as one that reads.
//!
//! The owner token is exchanged for another one at the store, in one step. If the answer is lost, the same exchange
//! is sent again, for as long as the lease lasts; a guard that is dropped meanwhile releases both tokens.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::line::Downgrade;
use distlock_core::store::{self, Exchanged};

use super::effects::Live;
use super::guard::LockGuard;
use super::lease::Lease;
use super::services::Services;
use super::table::LockTable;
use crate::engine::alarm::Alarm;
use crate::error::{IntoLockError, LockError};
use crate::observe::Verb;

/// The pause before an exchange without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(50);

impl LockGuard {
    /// Downgrades a write lock to a read lock: others may read as well from here on, and no writer has had the
    /// lock in between.
    ///
    /// Use it for work that changes something and then reads what it has written. Readers at the head of the
    /// queue get the lock at once. A waiting writer keeps later readers out, and gets the lock when this guard and
    /// theirs are released. A guard that reads is returned as it is. There is no way back: two readers that
    /// both want to write would wait for each other forever. Release the guard, take
    /// [`LockMode::Write`](crate::LockMode::Write) and read the data again.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let read = || locks.lock("report").mode(LockMode::Read).try_acquire();
    ///
    /// let guard = locks.lock("report").mode(LockMode::Write).acquire().await?;
    /// assert!(read().await?.is_none(), "it is being written");
    /// let guard = guard.downgrade().await?;
    /// assert!(read().await?.is_some() && guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The guard gets a new, larger [`fencing_token`](Self::fencing_token), and its lease restarts, within
    /// `max_hold`. Several locks are downgraded one by one.
    ///
    /// It takes one round trip to the store for each lock. If the answer is lost, the command is sent again for as long
    /// as the lease lasts, which takes effect once.
    ///
    /// # Errors
    ///
    /// The lock is released with each of them:
    ///
    /// - [`Lost`](LockError::Lost) if the lease was lost before;
    /// - [`Backend`](LockError::Backend) if the store did not confirm within `command_timeout`;
    /// - [`InvalidOption`](LockError::InvalidOption) for a guard of `permits`, and for one that takes part in
    ///   the lock of an enclosing call (`reentrant`).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lock is released.
    pub async fn downgrade(self) -> Result<Self, LockError> {
        self.locks.table.home().check()?;
        if self.owned < self.leases.len() {
            let text =
                "downgrade: the lock is an outer call's, which has it alone; downgrade that one";
            return Err(LockError::invalid_option(text));
        }
        if self.leases.iter().any(|lease| lease.limit().as_permits().is_some()) {
            let text = "downgrade: of permits there is nothing to downgrade; release the guard";
            return Err(LockError::invalid_option(text));
        }
        for lease in self.leases.iter().filter(|lease| lease.limit().is_alone()) {
            exchange(&self.locks.table, lease).await?;
        }
        Ok(self)
    }
}

/// Exchanges a lease's token for one that reads.
async fn exchange(table: &Arc<LockTable>, lease: &Arc<Lease>) -> Result<(), LockError> {
    let Services { clock, store, observers, alarms, command_timeout, .. } = &table.services;
    let answer_by = clock.now().after(*command_timeout);
    loop {
        let now = clock.now();
        let asked = table.change_known(&lease.lock, |line, effects| {
            line.downgrade(lease.place(), now, effects).filter(|_| now < lease.deadline())
        });
        let Some(exchange) = asked else { return Err(found_lost(table, lease)) };
        let Downgrade { old, new, term } = exchange.clone();
        let exchanging = store::Exchange { old, new, term };
        let op = store.clone().exchange(exchanging, answer_by.min(lease.deadline()));
        let fault = match observers.timed(Verb::Exchange, (*clock, now), op).await {
            Ok(answer) => return exchanged(table, lease, &exchange, answer),
            Err(fault) => fault,
        };
        let again = clock.now().after(PAUSE);
        if !fault.passing || again >= answer_by.min(lease.deadline()) {
            return Err(fault.into_error(Some(&lease.lock)));
        }
        Alarm::at(alarms, *clock, again).await;
    }
}

fn exchanged(
    table: &Arc<LockTable>,
    lease: &Arc<Lease>,
    exchange: &Downgrade<Live>,
    answer: Exchanged,
) -> Result<(), LockError> {
    if let Exchanged::Granted { .. } = answer {
        exchange.new.set_granted();
    }
    let still_held = table.change_known(&lease.lock, |line, effects| {
        let now = table.services.clock.now();
        let (place, grant) = line.exchanged(lease.place(), exchange, answer, now, effects)?;
        lease.read_on(place, grant);
        Some(())
    });
    if still_held.is_none() {
        return Err(found_lost(table, lease));
    }
    let old = &exchange.old;
    old.retire();
    // Bytes of it may still run where a connection died (R9).
    if old.in_doubt() {
        table.release_in_background(old.clone(), None);
    }
    Ok(())
}

fn found_lost(table: &Arc<LockTable>, lease: &Arc<Lease>) -> LockError {
    table.is_lost(lease);
    lease.lost_error(false)
}
