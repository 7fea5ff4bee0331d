//! The end of a manager: nobody gets a lock any more, and none is kept.

use super::line::Lost;
use super::{Closing, Denied, Kinds, Line, Loss, Place, Shell};
use crate::clock::Moment;

impl<K: Kinds> Line<K> {
    /// The manager gives no more locks: whoever waits learns that, and every lease ends. What is not
    /// in use is released, and so is what ran out in its holder's hand.
    pub fn close<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        for batch in self.batches_mut() {
            batch.deny_all(&Denied::Closed, shell);
        }
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        let aside = self.aside.iter().map(|aside| aside.number);
        for number in aside.chain(numbers).collect::<Vec<_>>() {
            match self.held_in(number) {
                Some(place) => self.lose(place, Some(Loss::Closed), now, shell),
                None => self.dissolve(number, shell),
            }
        }
        let mut left = Vec::new();
        for lost in std::mem::take(&mut self.lost) {
            let in_use = shell.has_body(&lost.holder.seat);
            match lost.loss {
                // Nobody may have the lock while a body is still there to touch what it protects.
                Loss::Closed if in_use => {
                    shell.closing(Closing::InUse(lost.holder.seat.clone()));
                    left.push(lost);
                }
                Loss::Closed => shell.closing(lost.closing(true, now, shell)),
                // Not under a body that goes on without its lock: that one frees it when it is done.
                Loss::Expired | Loss::MaxHold if !in_use => {
                    shell.closing(lost.closing(false, now, shell));
                }
                _ => left.push(lost),
            }
        }
        self.lost = left;
    }

    fn held_in(&self, number: u64) -> Option<Place> {
        let batch = self.batches().find(|batch| batch.number == number);
        let claim = match batch {
            Some(batch) => batch.claims()?.first(),
            None => &self.aside.iter().find(|aside| aside.number == number)?.claim,
        };
        claim.holder().map(|holder| holder.place(number))
    }
}

impl<K: Kinds> Lost<K> {
    fn closing<X: Shell<K>>(&self, was_held: bool, now: Moment, shell: &X) -> Closing<K> {
        Closing::Free { release: self.release(now, shell), was_held }
    }
}
