//! An owner token that is exchanged for another one at the store, in one step.
//!
//! If the answer is lost the same exchange is sent again, for as long as the lease lasts; a guard that is
//! dropped meanwhile releases both tokens.

use std::sync::Arc;
use std::time::Duration;

use super::core::Downgrade;
use super::effects::Live;
use super::lease::Lease;
use super::table::LockTable;
use crate::clock::Moment;
use crate::engine::alarm::Alarm;
use crate::error::{IntoLockError, LockError};
use crate::observe::Verb;
use crate::store::{self, Exchanged};

/// Before an exchange without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(50);

impl LockTable {
    /// Exchanges a lease's token for one that reads.
    pub(super) async fn downgrade(self: &Arc<Self>, lease: &Arc<Lease>) -> Result<(), LockError> {
        let answer_by = self.clock().now().after(self.command_timeout);
        loop {
            let now = self.clock().now();
            let asked = self.change_known(&lease.lock, |line, turn| {
                line.downgrade(lease.place(), now, turn).filter(|_| !lease.is_lost_at(now))
            });
            let Some(exchange) = asked else { return Err(self.found_lost(lease)) };
            let Downgrade { old, new, term } = exchange.clone();
            let exchanging = store::Exchange { old, new, term };
            let op = self.store.clone().exchange(exchanging, answer_by.min(lease.deadline()));
            let fault = match self.observers().timed(Verb::Exchange, (self.clock(), now), op).await
            {
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
        exchange: &Downgrade<Live>,
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
