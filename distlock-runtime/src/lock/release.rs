//! Giving a lock back.
//!
//! A token is released once, and for good: it is retired first, so that nothing that could create the
//! lock is sent for it any more, and the release goes over the connection of the acquires, behind them.
//! A caller that does not wait for the answer, or gives up on it, leaves the release to the engine.
//!
//! # What is sent again, and why
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
//! A lease that ends before its `min_hold` is over ([`Holder::free_from`](super::core::LocalHolder)) is
//! released with `keep`, the time that is left: the store has the lock expire then, also if this
//! process ends now. Waiters of this process ask for it again from their old places. The owner token remembers
//! until when it is kept, so that no other release of the same token frees it earlier
//! ([`Owner::kept`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::{FollowUp, Freeing, NextOwner, follow_up};
use super::effects::Live;
use super::release_retry::Unconfirmed;
use super::table::LockTable;
use crate::clock::{Clock, Moment};
use crate::error::{IntoLockError, LockError};
use crate::observe::{LostReason, Verb};
use crate::store::owner::Owner;
use crate::store::{Fault, Freed, Message, Op};
use crate::token::Token;

/// Why a release did not free a lock that its holder believed to have; `None` if it did, or another
/// release of the same token.
pub(super) fn not_ours(freeing: &Freeing<Live>, freed: &Freed, clock: Clock) -> Option<LostReason> {
    match freed.was_ours || freeing.token.was_undone() {
        true => None,
        // It was held until its holder was done.
        false if clock.now() >= freeing.deadline => Some(LostReason::Expired),
        false => Some(LostReason::Taken),
    }
}

/// Reports the failure of a release that no caller waits for.
fn report(freeing: &Freeing<Live>, result: &Result<Freed, Fault>, table: &LockTable) {
    let lock = &freeing.token.lock;
    let error = match result {
        Ok(freed) => match not_ours(freeing, freed, table.clock()) {
            Some(reason) => LockError::lost(lock, reason, false),
            None => return,
        },
        Err(fault) => fault.clone().into_error(Some(lock)),
    };
    table.observers().released_late(lock, error, false);
}

impl LockTable {
    /// Begins a release in the background: its command is on its way when this returns, behind
    /// everything that was sent for the lock before, and the engine waits for the answer.
    pub(crate) fn release_in_background(
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

    /// A release whose answer can be awaited. Its command is sent when it is polled or dropped,
    /// which is to happen before the caller does anything else to the same lock. Dropped before its
    /// answer, the engine finishes it.
    ///
    /// With `keep` the lock is not free before that time, though it is not held any more: the
    /// command is sent now, so that this also holds when the process ends.
    pub(crate) fn release(self: &Arc<Self>, freeing: Freeing<Live>) -> Releasing {
        freeing.token.retire();
        Releasing { table: self.clone(), freeing, state: State::Unsent, reported: false }
    }

    /// The same for a body that has returned, without waiting: a failure is reported as an event.
    pub(super) fn release_unawaited(self: &Arc<Self>, freeing: Freeing<Live>) {
        let mut release = self.release(freeing);
        release.reported = true;
        drop(release);
    }

    /// R7: the store has answered.
    pub(crate) fn freed(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        keep: Option<Duration>,
        freed: &Freed,
    ) {
        let lock = &owner.lock;
        self.identity().finish(&owner.token);
        if owner.stood() || freed.awaited || !freed.next.is_empty() {
            self.strays.released(owner, self.clock().now());
        }
        let owner_of = |token: Token<'_>| {
            let ours = token.process == self.process();
            NextOwner { ours, reserved_for: token.reservation }
        };
        for token in &freed.next {
            if Token::parse(token).is_some_and(|token| owner_of(token).ours) {
                self.reserved(Message { stored: lock.stored(), token });
            }
        }
        let next = freed.next.iter().filter_map(|token| Token::parse(token)).map(owner_of);
        match follow_up(keep, freed.awaited, next, self.store.is_notified(lock)) {
            FollowUp::Nothing | FollowUp::Called => {}
            FollowUp::Look => self.look(owner),
            FollowUp::RepeatAfter(pause) => {
                self.repeats.note(owner, self.clock().now().after(pause), self);
            }
        }
    }

    fn hand_to_engine(self: &Arc<Self>, freeing: Freeing<Live>, op: Op<Freed>, reported: bool) {
        let table = self.clone();
        let due = freeing.keep.map(|keep| self.clock().now().after(keep));
        let unfinished = self.background().unfinished();
        self.background().spawn(async move {
            let first = op.await;
            if reported {
                report(&freeing, &first, &table);
            }
            let release = Unconfirmed::new(freeing.token, due, unfinished);
            table.retries.retry_until_confirmed(release, first, &table);
        });
    }
}

/// A release under way.
pub(crate) struct Releasing {
    table: Arc<LockTable>,
    freeing: Freeing<Live>,
    state: State,
    /// No caller waits for it: a failure is reported as an event.
    reported: bool,
}

enum State {
    Unsent,
    /// At that time.
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
        if let State::Unsent = self.state {
            let clock = self.table.clock();
            let now = clock.now();
            let limit = now.after(self.table.command_timeout);
            let Freeing { token, keep, .. } = &self.freeing;
            let mut op = self.table.store.clone().release(token.clone(), *keep, limit);
            self.state = match op.as_mut().poll(cx) {
                Poll::Pending => State::Sent(op, now),
                Poll::Ready(result) => self.answered(result, now),
            };
        }
    }

    #[inline]
    fn answered(&self, result: Result<Freed, Fault>, sent: Moment) -> State {
        let times = (self.table.clock(), sent);
        self.table.observers().answered(Verb::Release, times, result.is_ok());
        State::answered(result)
    }
}

impl State {
    fn answered(result: Result<Freed, Fault>) -> Self {
        match result {
            Ok(freed) if freed.settled => Self::Done(freed),
            result => Self::Answered(result),
        }
    }
}

impl Future for Releasing {
    type Output = Result<Freed, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Unsent = this.state {
            this.begin(cx);
        } else if let State::Sent(op, sent) = &mut this.state
            && let Poll::Ready(result) = op.as_mut().poll(cx)
        {
            let sent = *sent;
            this.state = this.answered(result, sent);
        }
        match std::mem::replace(&mut this.state, State::Gone) {
            sent @ State::Sent(..) => {
                this.state = sent;
                Poll::Pending
            }
            State::Answered(result) => {
                let repeated = Box::pin(std::future::ready(result.clone()));
                this.table.hand_to_engine(this.freeing.clone(), repeated, false);
                Poll::Ready(result)
            }
            State::Done(freed) => {
                this.table.freed(&this.freeing.token, this.freeing.keep, &freed);
                Poll::Ready(Ok(freed))
            }
            State::Unsent | State::Gone => unreachable!("a release was polled after it was done"),
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if matches!(self.state, State::Gone) || !self.table.home().is_here() {
            return;
        }
        self.send();
        let op: Op<Freed> = match std::mem::replace(&mut self.state, State::Gone) {
            State::Unsent | State::Gone => return,
            State::Done(freed) => {
                if self.reported {
                    report(&self.freeing, &Ok(freed.clone()), &self.table);
                }
                return self.table.freed(&self.freeing.token, self.freeing.keep, &freed);
            }
            State::Answered(result) => Box::pin(std::future::ready(result)),
            State::Sent(op, sent) => {
                let times = (self.table.clock(), sent);
                self.table.observers().timed(Verb::Release, times, op)
            }
        };
        self.table.hand_to_engine(self.freeing.clone(), op, self.reported);
    }
}
