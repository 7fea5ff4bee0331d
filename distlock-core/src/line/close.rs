//! The end of a manager: no caller gets a lock any more, and none is kept.

use super::line::Lost;
use super::{Closing, Denied, Kinds, Line, Loss, Place, Shell};
use crate::clock::Moment;

impl<K: Kinds> Line<K> {
    /// The manager gives no more locks: waiters are refused, and every lease ends. What is not in use is
    /// released, and so is a lease that ran out before its holder gave it back.
    pub fn close<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        for batch in self.batches_mut() {
            batch.deny_all(&Denied::Closed, shell);
        }
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        let aside = self.aside.iter().map(|aside| aside.number);
        for number in aside.chain(numbers).collect::<Vec<_>>() {
            self.close_batch(number, now, shell);
        }
        let lost = std::mem::take(&mut self.lost);
        // No other call may have the lock while a body is still there to touch what it protects.
        let in_use = |lost: &Lost<K>| shell.has_body(&lost.holder.seat);
        let used: Vec<K::Token> =
            lost.iter().filter(|lost| in_use(lost)).map(|lost| lost.token.clone()).collect();
        let mut freed: Vec<K::Token> = Vec::new();
        for lost in lost {
            let in_use = shell.has_body(&lost.holder.seat);
            let is_freed = freed.contains(&lost.token);
            match lost.loss {
                Loss::Closed if in_use => {
                    shell.closing(Closing::InUse(lost.holder.seat.clone()));
                    self.lost.push(lost);
                }
                // Not under a body that goes on without its lock: that one frees it when it is done.
                Loss::Closed | Loss::Expired | Loss::MaxHold if !in_use => {
                    if !is_freed && !used.contains(&lost.token) {
                        freed.push(lost.token.clone());
                        shell.closing(lost.closing(now, shell));
                    }
                }
                _ => self.lost.push(lost),
            }
        }
    }

    fn close_batch<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        while let Some(claim) = self.claim_in(number, 0) {
            let held: Vec<i64> = claim.holders.iter().map(|holder| holder.at).collect();
            for at in &held {
                self.lose(Place { batch: number, at: *at }, Some(Loss::Closed), now, shell);
            }
            if held.is_empty()
                && let Some(claim) = self.take_claim(number, 0)
            {
                let keep = claim.keep(now);
                shell.release(claim.token, keep);
            }
        }
        self.dissolve(number, shell);
    }
}

impl<K: Kinds> Lost<K> {
    fn closing<X: Shell<K>>(&self, now: Moment, shell: &X) -> Closing<K> {
        let was_held = self.loss == Loss::Closed;
        Closing::Free { release: self.release(now, shell), was_held }
    }
}
