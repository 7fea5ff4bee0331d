//! Closing a manager: no new locks, and those that are held are released.

use std::time::Duration;

use crate::lock::core::Closing;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::select::until;
use crate::status::CloseReport;

impl LockManager {
    /// Gives no new locks, ends every lease, releases what was held, and waits at most `timeout` until the
    /// store has confirmed that. For the end of a program, after its servers have stopped.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// use distlock::LockError;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let report = locks.close(Duration::from_secs(5)).await;
    /// assert!(report.is_complete(), "{report:?}");
    /// assert!(matches!(locks.lock("order:42").acquire().await, Err(LockError::Closed)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Holders find their lease lost: a body under it is not polled again, and its caller gets
    /// [`Lost`](crate::LockError::Lost). A lock whose body is in the middle of a poll is released when that poll
    /// ends; if that is after `timeout`, it counts as unconfirmed.
    ///
    /// A clone of a closed manager is closed, too; calls that wait are refused with
    /// [`Closed`](crate::LockError::Closed). To close a second time waits for what is still unconfirmed.
    ///
    /// In a child that was forked without `exec` it does nothing: the locks are its parent's.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what has begun goes on in the background.
    pub async fn close(&self, timeout: Duration) -> CloseReport {
        let locks = self.locks();
        let Locks { table, engine, .. } = locks;
        if !table.home().is_here() {
            return CloseReport { freed: 0, unconfirmed: 0 };
        }
        let closing = table.close();
        table.retries.hurry();
        let (mut ending, mut in_use) = (Vec::new(), Vec::new());
        for closing in closing {
            match closing {
                Closing::Free { release, was_held } => {
                    let mut release = table.release(release);
                    release.send();
                    ending.push((release, was_held));
                }
                Closing::InUse(lease) => in_use.push(lease),
            }
        }
        let limit = table.clock().now().after(timeout);
        let mut report = CloseReport { freed: 0, unconfirmed: 0 };
        for (release, was_held) in ending {
            let confirmed = matches!(until(release, locks.alarm(limit)).await, Some(Ok(_)));
            report.freed += usize::from(confirmed && was_held);
            report.unconfirmed += usize::from(!confirmed);
        }
        for lease in in_use {
            match until(lease.returned(), locks.alarm(limit)).await {
                Some(()) => report.freed += 1,
                None => report.unconfirmed += 1,
            }
        }
        // What was let go before, and what holders let go just now, is confirmed in the background.
        if until(engine.all_finished(), locks.alarm(limit)).await.is_none() {
            let open = engine.unfinished();
            report.freed = report.freed.saturating_sub(open);
            report.unconfirmed = report.unconfirmed.max(open);
        }
        // Others see at once that this process is gone; by itself its record ends within a minute.
        if table.itself().is_some() {
            let gone = locks.store.clone().take_leave(table.process().to_owned(), limit);
            let _ = until(gone, locks.alarm(limit)).await;
        }
        report
    }
}
