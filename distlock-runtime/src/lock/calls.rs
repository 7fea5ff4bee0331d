//! What calls and guards do to their lock's line.

use std::sync::Arc;
use std::time::Duration;

use super::core::{
    Answer, Arrival, AttemptOutcome, Denied, Finished, Freeing, Loss, OwnAttempt, Request,
};
use super::effects::{Live, renewal};
use super::lease::Lease;
use super::table::LockTable;
use crate::clock::Moment;
use crate::name::LockName;
use crate::observe::LeaseEvent;
use crate::store::owner::Owner;
use crate::store::{Fault, Renewal};

impl LockTable {
    /// A caller wants the lock, and waits for it if fewer than `line_ends` here do already.
    #[inline]
    pub(super) fn arrive(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        request: Request,
        line_ends: usize,
        now: Moment,
    ) -> Arrival<Live> {
        self.change(lock, |line, turn| {
            let seat = |place| Lease::new(self, lock, request, (place, now));
            let arrival = line.arrive(request, line_ends, now, seat, turn);
            match &arrival {
                Arrival::Wait(place, _) => {
                    turn.waits(&request);
                    turn.joins_a_crowd = line.is_crowd(*place);
                }
                Arrival::Lead(attempt) | Arrival::Alone(attempt) => attempt.caller.trying(),
                Arrival::Held(_, lease, grant) => {
                    lease.granted(*grant);
                    lease.account().begin(now);
                }
                Arrival::Busy(_) => {}
            }
            arrival
        })
    }

    #[inline]
    pub(super) fn tried(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        answer: Result<Answer, Fault>,
        waits: bool,
    ) -> AttemptOutcome<Fault> {
        self.change(&lease.lock, |line, turn| {
            let now = self.clock().now();
            let tried = line.tried(lease.place(), answer, waits, now, turn);
            match tried {
                AttemptOutcome::Held(grant) => {
                    lease.granted(grant);
                    lease.account().begin(now);
                }
                AttemptOutcome::Wait => {
                    lease.in_line();
                    turn.waits(&lease.request);
                }
                AttemptOutcome::Denied { .. } | AttemptOutcome::TakenOver => {}
            }
            tried
        })
    }

    /// The same for a try past the line.
    pub(super) fn tried_alone(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        lease: &Arc<Lease>,
        answer: Result<Answer, Fault>,
    ) -> AttemptOutcome<Fault> {
        let (token, position, caller) = (owner.clone(), lease.place(), lease.clone());
        let attempt = OwnAttempt { token, position, caller };
        self.change(&lease.lock, |line, turn| {
            let now = self.clock().now();
            let tried = line.tried_alone(&attempt, lease.request, answer, now, turn);
            if let AttemptOutcome::Held(grant) = tried {
                lease.granted(grant);
                lease.account().begin(now);
            }
            tried
        })
    }

    /// A try is given up; false if it was taken over.
    pub(super) fn give_up_try(self: &Arc<Self>, lease: &Arc<Lease>) -> bool {
        self.change_known(&lease.lock, |line, _| line.give_up_try(lease.place()))
    }

    /// A caller leaves its line, also if it was granted the lock in this moment.
    pub(super) fn leave(self: &Arc<Self>, lease: &Arc<Lease>) {
        let left = self.change_known(&lease.lock, |line, turn| {
            line.leave(lease.place(), self.clock().now(), turn)
        });
        if let Some(Freeing { token, keep, .. }) = left.and_then(|finished| finished.release) {
            self.release_in_background(token, keep);
        }
    }

    /// A caller that did not take its grant in time asks for it again.
    pub(super) fn rejoin(self: &Arc<Self>, lease: &Arc<Lease>) {
        self.change(&lease.lock, |line, turn| {
            if let Some(place) = line.rejoin(lease.request, lease, self.clock().now(), turn) {
                lease.moved(place);
                turn.waits(&lease.request);
            }
        });
    }

    /// Why a caller whose wait is over did not get the lock; `None` if it is not known yet whether the lock
    /// is taken.
    pub(super) fn verdict(&self, lease: &Lease) -> Option<Denied<Fault>> {
        let now = self.clock().now();
        let verdict = self.read(&lease.lock, |line| line.verdict(lease.place(), now));
        verdict.unwrap_or(Some(Denied::Taken(None)))
    }

    /// A holder is done, and its body gone. What this says is to be released is released by the caller,
    /// now and for good.
    pub(crate) fn finish(self: &Arc<Self>, lease: &Arc<Lease>) -> Finished<Live> {
        self.finish_at(lease, self.clock().now())
    }

    /// The same for a caller that has just read the clock.
    #[inline]
    pub(crate) fn finish_at(self: &Arc<Self>, lease: &Arc<Lease>, now: Moment) -> Finished<Live> {
        let finished = self.change_known(&lease.lock, |line, turn| {
            lease.retire();
            turn.hands_over = true;
            let finished = line.finish(lease.place(), now, turn);
            if finished.was_held {
                turn.show(lease, LeaseEvent::Released);
            }
            if let Some(Freeing { token, keep: Some(keep), .. }) = &finished.release {
                self.keep_until(token, now.after(*keep));
            }
            Some(finished)
        });
        let was_held = finished.as_ref().is_some_and(|finished| finished.was_held);
        lease.account().ended(now, !was_held);
        lease.returned_now();
        finished.unwrap_or(Finished { was_held: false, release: None })
    }

    /// Ends a lease, and releases its token in the background if it is to be released. The caller reports it
    /// to observers.
    pub(crate) fn end_in_background(self: &Arc<Self>, lease: &Arc<Lease>) {
        if let Some(Freeing { token, keep, .. }) = self.finish(lease).release {
            self.release_in_background(token, keep);
        }
    }

    /// A caller finds its lease over before the engine does.
    pub(super) fn expire(self: &Arc<Self>, lease: &Arc<Lease>) {
        self.change_known(&lease.lock, |line, turn| {
            line.expire(lease.place(), self.clock().now(), turn);
        });
    }

    /// The caller has the lock, and all others that it asked for.
    #[inline]
    pub(crate) fn complete(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.put_in_hand();
        lease.show(self.observers(), LeaseEvent::Held);
        if lease.request.part_until.is_some() {
            self.change_known(&lease.lock, |line, turn| {
                line.complete(lease.place(), self.clock().now(), turn);
            });
        }
    }

    /// No later holder gets a fencing token as low as this one.
    pub(crate) fn outdo(self: &Arc<Self>, lease: &Arc<Lease>, fencing_token: u64) {
        self.change_known(&lease.lock, |line, _| line.outdo(lease.place(), fencing_token));
    }

    /// What is to be sent to have a lease extended; `None` if it is not held any more.
    pub(crate) fn extension(&self, lease: &Lease, ttl: Duration) -> Option<Renewal> {
        let now = self.clock().now();
        self.read(&lease.lock, |line| line.extension(lease.place(), ttl, now))?.map(renewal)
    }

    /// The store has extended a lease on its holder's wish, in answer to a command sent at `sent`.
    pub(crate) fn extended(self: &Arc<Self>, lease: &Arc<Lease>, sent: Moment, ttl: Duration) {
        self.change_known(&lease.lock, |line, turn| line.extended(lease.place(), sent, ttl, turn));
    }

    /// The store says that the lock is not the token's any more. True if it was held here.
    pub(crate) fn taken_away(self: &Arc<Self>, owner: &Arc<Owner>, loss: Loss) -> bool {
        self.change_known(&owner.lock, |line, turn| {
            let held = line.held().any(|(token, _)| token == owner);
            line.taken_away(owner, loss, self.clock().now(), turn);
            held
        })
    }
}
