//! A guard that has its lock alone goes on as one that reads.
//!
//! The owner token is exchanged at the store in one step. If the answer is lost the same exchange is sent
//! again, for as long as the lease lasts; a guard that is dropped meanwhile releases both tokens.

use std::sync::Arc;
use std::time::Duration;

use super::core::Exchange;
use super::guard::LockGuard;
use super::lease::Lease;
use super::table::LockTable;
use super::turn::Live;
use crate::clock::Moment;
use crate::engine::alarm::Alarm;
use crate::error::LockError;
use crate::store::{self, Exchanged};

/// Before an exchange without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(50);

impl LockGuard {
    /// Goes on as a reader: others may read as well from here on, and nobody has written in between.
    ///
    /// For work that changes something and goes on to read what it has written. Readers that waited in
    /// front come in at once; a writer that waits keeps later readers out, and comes when this guard and
    /// theirs are released. A guard that reads is returned as it is. There is no way back: two readers that
    /// both want to write would wait for each other for ever. Release the guard, take
    /// [`LockMode::Write`](crate::LockMode::Write) and look again at what was read.
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
    /// The guard gets a new, larger [`fencing_token`](Self::fencing_token), and its lease begins anew, within
    /// `max_hold`. Of several locks each is exchanged by itself.
    ///
    /// # Errors
    ///
    /// The lock is released with each of them:
    ///
    /// - [`Lost`](LockError::Lost) if the lease was lost before;
    /// - [`Backend`](LockError::Backend) if the store did not confirm within `command_timeout`;
    /// - [`InvalidOption`](LockError::InvalidOption) for a guard of `permits`, and for one that takes part in
    ///   the lock of an outer call (`reentrant`).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lock is released.
    pub async fn downgrade(self) -> Result<Self, LockError> {
        self.home().check()?;
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
            self.locks.table.downgrade(lease).await?;
        }
        Ok(self)
    }
}

impl LockTable {
    async fn downgrade(self: &Arc<Self>, lease: &Arc<Lease>) -> Result<(), LockError> {
        let answer_by = self.clock().now().after(self.command_timeout);
        loop {
            let now = self.clock().now();
            let asked = self.change_known(&lease.lock, |line, turn| {
                line.downgrade(lease.place(), now, turn).filter(|_| !lease.is_lost_at(now))
            });
            let Some(exchange) = asked else { return Err(self.found_lost(lease)) };
            let Exchange { old, new, term } = exchange.clone();
            let exchanging = store::Exchange { old, new, term };
            let op = self.store.clone().exchange(exchanging, answer_by.min(lease.deadline()));
            let fault = match self.observers().timed("exchange", (self.clock(), now), op).await {
                Ok(answer) => return self.exchanged(lease, &exchange, answer),
                Err(fault) => fault,
            };
            let again = self.clock().now().after(PAUSE);
            if !fault.passing || again >= answer_by.min(lease.deadline()) {
                return Err(fault.into_error(Some(&lease.lock)));
            }
            Alarm::at(self.alarms(), self.clock(), again).await;
        }
    }

    fn exchanged(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        exchange: &Exchange<Live>,
        answer: Exchanged,
    ) -> Result<(), LockError> {
        if let Exchanged::Granted { .. } = answer {
            exchange.new.set_granted();
        }
        let goes_on = self.change_known(&lease.lock, |line, turn| {
            let now = self.clock().now();
            let (place, grant) = line.exchanged(lease.place(), exchange, answer, now, turn)?;
            lease.read_on(place, grant);
            Some(())
        });
        if goes_on.is_none() {
            return Err(self.found_lost(lease));
        }
        let old = &exchange.old;
        old.retire();
        // Bytes of it may still run where a connection died (R9).
        if old.in_doubt() {
            self.release_in_background(old.clone(), None);
        }
        Ok(())
    }

    fn found_lost(self: &Arc<Self>, lease: &Arc<Lease>) -> LockError {
        lease.is_lost(self);
        lease.lost_error(false)
    }
}

impl Lease {
    fn is_lost_at(&self, now: Moment) -> bool {
        now >= self.deadline()
    }
}
