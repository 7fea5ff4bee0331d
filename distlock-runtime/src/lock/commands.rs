//! What lines ask of the store's queue, and how the store notifies them.
//!
//! Everything that could create a lock for a waiting batch is sent from here, on the engine's thread
//! (in memory, where no answer is awaited, on whatever thread) and never twice at the same time. So a
//! release that is sent later comes later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::{Enter, Entered, Line};
use super::effects::Live;
use super::table::LockTable;
use crate::name::LockName;
use crate::observe::Verb;
use crate::store::owner::Owner;
use crate::store::{Entry, Fault, Message, Notification, Op};

impl LockTable {
    /// Has a batch enter the queue, or look at it.
    pub(super) fn enter(self: &Arc<Self>, enter: Enter<Live>) {
        let Enter { token: owner, term, ticket } = enter;
        let entry = Entry { owner: owner.clone(), term, ticket };
        let (clock, now) = (self.clock(), self.clock().now());
        let limit = now.after(self.command_timeout);
        owner.will_stand(now);
        let verb = if ticket == 0 { Verb::Acquire } else { Verb::Confirm };
        let op = self.observers().timed(verb, (clock, now), self.store.clone().enter(entry, limit));
        let table = self.clone();
        self.follow(op, move |answer| {
            if let Ok(Entered::Granted { .. }) = answer {
                owner.set_granted();
            }
            table.change_known(&owner.lock, |line, turn| {
                line.entered(&owner, term, answer, table.clock().now(), turn);
            });
        });
    }

    /// Releases a token that left the queue, behind what was sent.
    pub(super) fn leave_queue(self: &Arc<Self>, owner: Arc<Owner>, keep: Option<Duration>) {
        if self.agenda.is_the_engines() {
            let table = self.clone();
            self.background().finish(async move { table.release_in_background(owner, keep) });
        } else {
            self.release_in_background(owner, keep);
        }
    }

    /// Sends what `op` has to send, here and now, and sees to its answer when it is there.
    pub(super) fn follow<T: Send + 'static>(
        &self,
        mut op: Op<T>,
        then: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) {
        match Pin::new(&mut op).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => then(answer),
            Poll::Pending => {
                self.background().spawn_here(self.agenda.is_the_engines(), async move {
                    then(op.await);
                })
            }
        }
    }

    /// The store has sent a notification.
    pub(crate) fn on_notification(self: &Arc<Self>, notification: Notification<'_>) {
        match notification {
            Notification::Reserved(message) => self.reserved(message),
            Notification::WaiterBehind(message) => {
                let now = self.clock().now();
                self.hears(message, |line| line.sealed(|own| own.token == message.token, now));
            }
            Notification::TakenAway(message) => self.look_into(message),
            Notification::Question { prefix, text } => self.asked(prefix, text),
            Notification::Answer(text) => self.questions.answered(text),
            Notification::Interrupted => self.interrupted(|_| true),
            Notification::InterruptedFor(which) => self.interrupted(which.0),
        }
    }

    /// Makes every waiter for one of these locks poll, because the store may have come back in an older state.
    fn interrupted(self: &Arc<Self>, which: impl Fn(&LockName) -> bool) {
        self.strays.is_another_store();
        for lock in self.locks().iter().filter(|lock| which(lock)) {
            self.change_known(lock, |line, _| line.look_all());
        }
    }

    /// R4: a lock may have been reserved for this token.
    pub(super) fn reserved(self: &Arc<Self>, message: Message<'_>) {
        self.hears(message, |line| line.called(|own| own.token == message.token));
    }

    /// R4: passes a message about a token to its line, or releases the token if no call uses it.
    fn hears(self: &Arc<Self>, message: Message<'_>, act: impl FnOnce(&mut Line<Live>)) {
        let mut known = false;
        self.change_stored(message.stored, |line| {
            known = line.knows(|own| own.token == message.token);
            if known {
                act(line);
            }
        });
        if !known {
            self.asked_for_stray(message);
        }
    }

    /// The lock may be free: the first waiter of this process polls.
    pub(super) fn look(self: &Arc<Self>, owner: &Owner) {
        self.change_known(&owner.lock, |line, _| Line::look(line));
    }
}
