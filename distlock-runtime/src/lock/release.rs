//! Giving a lock back: the lease ends in its line, and its token is released at the store.
//!
//! A token is released once, and for good: it is retired first, so that nothing that could create the
//! lock is sent for it any more, and the release goes over the connection of the acquires, after them.
//! A caller that does not wait for the answer, or gives up on it, leaves the release to the engine.
//!
//! # Releases that are sent again
//!
//! - *No answer, or an error*: the engine tries until the store has confirmed, or the lock has expired
//!   by itself ([`release_retry`](super::release_retry), with one back-off for all releases that go over
//!   a connection).
//! - *Confirmed, but an acquire of the same token died unanswered with an older connection*: its bytes
//!   may still be on their way, and would take the lock for a call that is gone. So the release is
//!   repeated after 250 ms, 1 s and 4 s ([`release_retry`](super::release_retry)).
//! - *Confirmed, and the lock was reserved for another process*: that one may have died. The release is
//!   sent once more when the reservation is over; if the lock was not taken, it frees it for the next
//!   (R7; [`release_recheck`](super::release_recheck)).
//! - *Kept for its `min_hold`, with others in the queue*: the release is sent once more when it is due,
//!   as the lock's expiry alone would not reserve it for the next one
//!   ([`release_recheck`](super::release_recheck)).
//!
//! # `min_hold`
//!
//! A lease that ends before its `min_hold` is over ([`LocalHolder::free_from`](distlock_core::line::LocalHolder)) is
//! released with `keep`, the time that is left: the store has the lock expire then, also if this
//! process ends now. Waiters of this process ask for it again from their old places. The owner token remembers
//! until when it is kept, so that no other release of the same token frees it earlier
//! ([`Owner::kept`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::catch_panic::shielded;
use distlock_core::clock::{Clock, Moment};
use distlock_core::line::{Finished, FollowUp, Freeing, Line, NextOwner, follow_up};
use distlock_core::name::LockName;
use distlock_core::store::owner::Owner;
use distlock_core::store::{Fault, Freed, Message, Op};
use distlock_core::token::Token;

use super::effects::Live;
use super::lease::Lease;
use super::messages::reserved;
use super::release_retry::{Confirmed, Retried, Unconfirmed};
use super::services::Services;
use super::table::LockTable;
use crate::error::{IntoLockError, LockError};
use crate::observe::{LeaseEvent, LostReason, Verb};

impl LockTable {
    /// Ends a lease whose holder is done, and whose body is gone. If this returns a release, the caller must send
    /// it, now and for good.
    #[inline]
    pub(super) fn finish(self: &Arc<Self>, lease: &Arc<Lease>, now: Moment) -> Finished<Live> {
        let finished = self.change_known(&lease.lock, |line, effects| {
            lease.retire();
            effects.hands_over = true;
            let finished = line.finish(lease.place(), now, effects);
            if finished.was_held {
                effects.show(lease, LeaseEvent::Released);
            }
            if let Some(Freeing { token, keep: Some(keep), .. }) = &finished.release {
                self.services.keep_until(token, now.after(*keep));
            }
            Some(finished)
        });
        let was_held = finished.as_ref().is_some_and(|finished| finished.was_held);
        lease.account.ended(now, !was_held);
        lease.returned_now();
        finished.unwrap_or(Finished { was_held: false, release: None })
    }

    /// Ends a lease, and releases its token in the background if it is to be released. The caller reports it
    /// to observers.
    pub(super) fn end_in_background(self: &Arc<Self>, lease: &Arc<Lease>) {
        let finished = self.finish(lease, self.services.clock.now());
        if let Some(Freeing { token, keep, .. }) = finished.release {
            self.release_in_background(token, keep);
        }
    }

    /// Begins a release in the background: its command is on its way when this returns, after
    /// everything that was sent for the lock before, and the engine waits for the answer.
    pub(super) fn release_in_background(
        self: &Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
    ) {
        owner.retire();
        if !owner.is_unsent() {
            drop(self.release(Freeing { token: owner, keep, deadline: Moment::NEVER }));
        } else {
            self.freed(&owner, None, &Freed::nothing());
        }
    }

    /// Makes a release whose answer can be awaited. Its command is sent when it is polled or dropped,
    /// which must happen before the caller does anything else to the same lock. If it is dropped before its
    /// answer, the engine finishes it.
    ///
    /// With `keep` the lock is not free before that time, though it is not held any more: the
    /// command is sent now, so that this also holds when the process ends.
    pub(crate) fn release(self: &Arc<Self>, freeing: Freeing<Live>) -> Releasing {
        freeing.token.retire();
        Releasing { table: self.clone(), freeing, progress: Progress::Unsent, reported: false }
    }

    /// Sends the release for a body that has returned, without waiting: a failure is reported as an event.
    pub(super) fn release_unawaited(self: &Arc<Self>, freeing: Freeing<Live>) {
        let mut release = self.release(freeing);
        release.reported = true;
        drop(release);
    }

    /// Does what follows from the store's answer to a release. // R7
    fn freed(self: &Arc<Self>, owner: &Arc<Owner>, keep: Option<Duration>, freed: &Freed) {
        let Services { clock, store, identity, orphans, timers, .. } = &self.services;
        let lock = &owner.lock;
        identity.finish(&owner.token);
        if owner.stood() || freed.awaited || !freed.next.is_empty() {
            orphans.released(owner, clock.now());
        }
        let owner_of = |token: Token<'_>| {
            let ours = token.process == identity.process();
            NextOwner { ours, reserved_for: token.reservation }
        };
        for token in &freed.next {
            if Token::parse(token).is_some_and(|token| owner_of(token).ours) {
                reserved(self, Message { stored: lock.stored(), token });
            }
        }
        let next = freed.next.iter().filter_map(|token| Token::parse(token)).map(owner_of);
        match follow_up(keep, freed.awaited, next, store.is_notified(lock)) {
            FollowUp::Nothing | FollowUp::Called => {}
            FollowUp::Look => self.change_known(lock, |line, _| Line::look(line)),
            FollowUp::RepeatAfter(pause) => {
                self.rechecks.add(owner, clock.now().after(pause), timers);
            }
        }
    }

    /// Has the engine wait for the answer to a release, and retry it until it is confirmed.
    fn hand_to_engine(self: &Arc<Self>, freeing: Freeing<Live>, op: Op<Freed>, reported: bool) {
        let table = self.clone();
        let Services { clock, background, .. } = &self.services;
        let due = freeing.keep.map(|keep| clock.now().after(keep));
        let unfinished = background.unfinished();
        background.spawn(async move {
            let first = op.await;
            if reported {
                report(&freeing, &first, &table.services);
            }
            let release = Unconfirmed::new(freeing.token, due, unfinished);
            match table.retries.begin(release, first, &table.services) {
                Retried::Joined => {}
                Retried::Done(confirmed) => table.confirmed(&confirmed),
                // In a task of its own, which needs no room for what this one has awaited.
                Retried::Starts(lane) => {
                    let own = table.clone();
                    table.services.background.spawn(async move {
                        while let Some(confirmed) = lane.confirmed(&own.services).await {
                            confirmed.iter().for_each(|confirmed| own.confirmed(confirmed));
                        }
                    });
                }
            }
        });
    }

    fn confirmed(self: &Arc<Self>, confirmed: &Confirmed) {
        let Confirmed { owner, keep, freed, .. } = confirmed;
        self.freed(owner, *keep, freed);
    }

    /// Releases a token once: if this fails, the lock expires by itself.
    async fn release_once(self: Arc<Self>, owner: Arc<Owner>) {
        let Services { clock, store, command_timeout, .. } = &self.services;
        let limit = clock.now().after(*command_timeout);
        if let Ok(freed) = store.clone().release(owner.clone(), None, limit).await {
            self.freed(&owner, None, &freed);
        }
    }

    /// Sends the releases again that are due.
    pub(super) fn recheck_releases(self: &Arc<Self>) {
        let Services { clock, timers, background, .. } = &self.services;
        for owner in self.rechecks.take_due(clock.now(), timers) {
            background.spawn(self.clone().release_once(owner));
        }
    }

    /// Releases the tokens that the store has asked about, and that no call of this process uses.
    pub(super) fn release_orphans(self: &Arc<Self>) {
        let Services { clock, identity, orphans, background, .. } = &self.services;
        for (token, stored) in orphans.take() {
            let knows = |line: &Line<Live>| line.knows(|own| own.token == token);
            let is_known = || self.read(&stored, knows) == Some(true);
            if !orphans.is_orphan(&token, identity, clock.now(), is_known) {
                continue;
            }
            let Some(name) = LockName::of_message(&stored) else { continue };
            let owner = Arc::new(Owner::stray(Arc::new(name), token));
            let table = self.clone();
            background.spawn(async move {
                let _ = shielded(table.clone().release_once(owner.clone())).await;
                // The tokens before this one in the queue may be as old.
                table.change_known(&owner.lock, |line, _| Line::look(line));
            });
        }
    }
}

/// Returns why a release did not free a lock that its holder believed to have; `None` if it did, or another
/// release of the same token has.
pub(super) fn not_ours(freeing: &Freeing<Live>, freed: &Freed, clock: Clock) -> Option<LostReason> {
    match freed.was_ours || freeing.token.was_undone() {
        true => None,
        // It was held until its holder was done.
        false if clock.now() >= freeing.deadline => Some(LostReason::Expired),
        false => Some(LostReason::Taken),
    }
}

/// Reports the failure of a release that no caller waits for.
fn report(freeing: &Freeing<Live>, result: &Result<Freed, Fault>, services: &Services) {
    let lock = &freeing.token.lock;
    let error = match result {
        Ok(freed) => match not_ours(freeing, freed, services.clock) {
            Some(reason) => LockError::lost(lock, reason, false),
            None => return,
        },
        Err(fault) => fault.clone().into_error(Some(lock)),
    };
    services.observers.released_late(lock, error, false);
}

/// A release under way.
pub(crate) struct Releasing {
    table: Arc<LockTable>,
    freeing: Freeing<Live>,
    progress: Progress,
    /// No caller waits for it: a failure is reported as an event.
    reported: bool,
}

enum Progress {
    Unsent,
    /// Sent at that time.
    Sent(Op<Freed>, Moment),
    /// Answered, but to be sent again.
    Answered(Result<Freed, Fault>),
    Done(Freed),
    Gone,
}

impl Releasing {
    pub(super) fn freeing(&self) -> &Freeing<Live> {
        &self.freeing
    }

    /// Sends it, to be polled later.
    pub(crate) fn send(&mut self) {
        self.begin(&mut Context::from_waker(Waker::noop()));
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        if let Progress::Unsent = self.progress {
            let Services { clock, store, command_timeout, .. } = &self.table.services;
            let now = clock.now();
            let limit = now.after(*command_timeout);
            let Freeing { token, keep, .. } = &self.freeing;
            let mut op = store.clone().release(token.clone(), *keep, limit);
            self.progress = match op.as_mut().poll(cx) {
                Poll::Pending => Progress::Sent(op, now),
                Poll::Ready(result) => self.answered(result, now),
            };
        }
    }

    #[inline]
    fn answered(&self, result: Result<Freed, Fault>, sent: Moment) -> Progress {
        let Services { clock, observers, .. } = &self.table.services;
        observers.answered(Verb::Release, (*clock, sent), result.is_ok());
        match result {
            Ok(freed) if freed.settled => Progress::Done(freed),
            result => Progress::Answered(result),
        }
    }
}

impl Future for Releasing {
    type Output = Result<Freed, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Progress::Unsent = this.progress {
            this.begin(cx);
        } else if let Progress::Sent(op, sent) = &mut this.progress
            && let Poll::Ready(result) = op.as_mut().poll(cx)
        {
            let sent = *sent;
            this.progress = this.answered(result, sent);
        }
        match std::mem::replace(&mut this.progress, Progress::Gone) {
            sent @ Progress::Sent(..) => {
                this.progress = sent;
                Poll::Pending
            }
            Progress::Answered(result) => {
                let repeated = Box::pin(std::future::ready(result.clone()));
                this.table.hand_to_engine(this.freeing.clone(), repeated, false);
                Poll::Ready(result)
            }
            Progress::Done(freed) => {
                this.table.freed(&this.freeing.token, this.freeing.keep, &freed);
                Poll::Ready(Ok(freed))
            }
            Progress::Unsent | Progress::Gone => {
                unreachable!("a release was polled after it was done")
            }
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if matches!(self.progress, Progress::Gone) || !self.table.services.home.is_here() {
            return;
        }
        self.send();
        let op: Op<Freed> = match std::mem::replace(&mut self.progress, Progress::Gone) {
            Progress::Unsent | Progress::Gone => return,
            Progress::Done(freed) => {
                if self.reported {
                    report(&self.freeing, &Ok(freed.clone()), &self.table.services);
                }
                return self.table.freed(&self.freeing.token, self.freeing.keep, &freed);
            }
            Progress::Answered(result) => Box::pin(std::future::ready(result)),
            Progress::Sent(op, sent) => {
                let Services { clock, observers, .. } = &self.table.services;
                observers.timed(Verb::Release, (*clock, sent), op)
            }
        };
        self.table.hand_to_engine(self.freeing.clone(), op, self.reported);
    }
}
