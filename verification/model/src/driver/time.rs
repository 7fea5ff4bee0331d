//! Time passes for one process.

use super::shell::millis;
use super::{Process, Turn};
use crate::network::Sent;

impl Turn<'_> {
    /// So many ms have passed: whatever is due is done.
    pub(crate) fn tick(&mut self, passed: u32) {
        self.process.now = self.process.now.after(millis(passed));
        self.process.forget();
        self.release_due();
        for key in 0..self.cfg.keys {
            self.on(key, |_, _, _| ());
        }
        self.settle();
    }
}

impl Process {
    /// What is known of tokens that nothing uses any more.
    pub(crate) fn forget(&mut self) {
        let mut ledger = std::mem::take(&mut self.ledger);
        ledger.retain(|entry| {
            let (key, token) = (entry.key, entry.token);
            let under_way = |sent: &Sent| sent.command.token() == Some(token);
            let kept = entry.kept_until.is_some_and(|end| self.now < end);
            kept || self.accounts_for(key, token)
                || self.main.under_way().any(under_way)
                || self.renewals.under_way().any(under_way)
        });
        self.ledger = ledger;
        self.census.forget(self.now);
    }
}
