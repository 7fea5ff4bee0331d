//! The effects of one change of a lock's line, collected while it changes.
//!
//! A line changes under the mutex of its shard, and calls its shell for what has to follow: tasks to wake,
//! commands to send, losses to report. [`Effects`] is that shell. It keeps all of this until the change is over;
//! [`commands`](super::commands) carries it out once no mutex is held, so that no code of a user's runs under one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use distlock_core::back_off::jittered;
use distlock_core::catch_panic::shield;
use distlock_core::clock::Moment;
use distlock_core::line::{
    Closing, Denied, Enter, Grant, Kinds, Limit, Loss, Renew, Request, Reservation, Shell,
};
use distlock_core::name::LockName;
use distlock_core::store::owner::Owner;
use distlock_core::store::{Fault, Renewal, Term};

use super::lease::Lease;
use super::services::Services;
use crate::observe::LeaseEvent;

/// The kinds of things that lines are made of in this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Live;

impl Kinds for Live {
    type Token = Arc<Owner>;
    type Caller = Arc<Lease>;
    type Fault = Fault;
}

/// The effects of one change of one lock's line.
pub(super) struct Effects<'a> {
    pub(super) services: &'a Services,
    pub(super) lock: &'a Arc<LockName>,
    /// The end of the wait of a caller that waits from now on.
    pub(super) waits_until: Moment,
    /// Whether what is granted now was another caller's here until now.
    pub(super) hands_over: bool,
    /// Whether all that changes is that one more waits where several wait already.
    pub(super) joins_a_crowd: bool,
    /// Nearly every change wakes one task at most,
    pub(super) woken: Option<Waker>,
    /// and brings about nothing else.
    pub(super) more: Option<Box<More>>,
}

/// Effects that few changes have.
#[derive(Default)]
pub(super) struct More {
    pub(super) woken: Vec<Waker>,
    pub(super) lost: Vec<(Arc<Lease>, Loss)>,
    pub(super) shown: Vec<(Arc<Lease>, LeaseEvent)>,
    pub(super) commands: Vec<Command>,
    pub(super) renewals: Vec<Renew<Live>>,
    pub(super) closing: Vec<Closing<Live>>,
}

/// A command to be sent, in the order in which the line asked for it.
pub(super) enum Command {
    Enter(Enter<Live>),
    Release(Arc<Owner>, Option<Duration>),
}

impl<'a> Effects<'a> {
    #[inline]
    pub(super) fn new(services: &'a Services, lock: &'a Arc<LockName>) -> Self {
        let waits_until = Moment::NEVER;
        let (hands_over, joins_a_crowd) = (false, false);
        Self { services, lock, waits_until, hands_over, joins_a_crowd, woken: None, more: None }
    }

    /// Notes that a caller waits in the line from now on.
    pub(super) fn waits(&mut self, request: &Request) {
        self.waits_until = self.waits_until.min(request.wait_until);
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Takes the renewals that the line asks for: the code that made the change sends them.
    pub(super) fn take_renewals(&mut self) -> Vec<Renew<Live>> {
        self.more.as_mut().map(|more| std::mem::take(&mut more.renewals)).unwrap_or_default()
    }

    /// Takes what closing the manager does to each lease.
    pub(super) fn take_closing(&mut self) -> Vec<Closing<Live>> {
        self.more.as_mut().map(|more| std::mem::take(&mut more.closing)).unwrap_or_default()
    }

    #[inline]
    fn wake_up(&mut self, waker: Option<Waker>) {
        match (&self.woken, waker) {
            (Some(_), Some(waker)) => self.more().woken.push(waker),
            (None, waker @ Some(_)) => self.woken = waker,
            (_, None) => {}
        }
    }

    /// Has a caller look at its line again.
    pub(super) fn wake_seat(&mut self, lease: &Arc<Lease>) {
        self.wake_up(lease.wake());
    }

    /// Has an event shown to the probe of a test, if there is one, before any task is woken for it.
    #[inline]
    pub(super) fn show(&mut self, lease: &Arc<Lease>, event: LeaseEvent) {
        if self.services.observers.probe().is_some() {
            self.more().shown.push((lease.clone(), event));
        }
    }
}

/// Wakes a task. Call this while no mutex is held.
#[inline]
pub(super) fn wake(waker: Waker) {
    shield(|| waker.wake());
}

impl Shell<Live> for Effects<'_> {
    fn issue(&mut self, limit: Limit, reservation: Reservation, now: Moment) -> Arc<Owner> {
        let Reservation { notified, time } = reservation;
        let token = self.services.identity.issue(notified, time, limit, now);
        Arc::new(Owner::new(self.lock.clone(), token, limit))
    }

    fn number(&mut self) -> u64 {
        self.services.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn is_notified(&self) -> bool {
        self.services.store.is_notified(self.lock)
    }

    fn first_look(&self) -> Duration {
        self.services.store.first_look()
    }

    fn fences_per_draw(&self) -> u64 {
        self.services.store.fences_per_draw()
    }

    fn needs_renewal(&self) -> bool {
        self.services.needs_renewal
    }

    fn is_closed(&self) -> bool {
        self.services.closed.load(Ordering::Acquire)
    }

    fn is_unsent(&self, token: &Arc<Owner>) -> bool {
        token.is_unsent()
    }

    fn jittered(&mut self, whole: Duration) -> Duration {
        jittered(whole)
    }

    fn in_hand(&self, seat: &Arc<Lease>) -> bool {
        seat.is_in_hand()
    }

    fn has_body(&self, seat: &Arc<Lease>) -> bool {
        seat.has_body()
    }

    fn take_back(&mut self, seat: &Arc<Lease>) -> bool {
        seat.take_back()
    }

    fn take_over(&mut self, seat: &Arc<Lease>) {
        seat.in_line();
        self.waits(&seat.request);
    }

    #[inline]
    fn grant(&mut self, seat: &Arc<Lease>, grant: Grant, now: Moment) {
        seat.account.came(self.hands_over);
        self.wake_up(seat.grant(grant, now));
    }

    fn deny(&mut self, seat: &Arc<Lease>, why: Denied<Fault>) {
        self.wake_up(seat.deny(why));
    }

    fn wake(&mut self, seat: &Arc<Lease>) {
        self.wake_seat(seat);
    }

    fn extended(&mut self, seat: &Arc<Lease>, deadline: Moment) {
        seat.extended(deadline);
    }

    fn lost(&mut self, seat: &Arc<Lease>, loss: Loss) {
        seat.end(loss);
        self.show(seat, LeaseEvent::Lost);
        self.more().lost.push((seat.clone(), loss));
    }

    fn begin_term(&mut self, token: &Arc<Owner>, term: Term) {
        self.services.store.begin_term(token, term);
    }

    fn enter(&mut self, enter: Enter<Live>) {
        self.more().commands.push(Command::Enter(enter));
    }

    fn release(&mut self, token: Arc<Owner>, keep: Option<Duration>) {
        if let Some(keep) = keep {
            self.services.keep_until(&token, self.services.clock.now().after(keep));
        }
        token.retire();
        self.more().commands.push(Command::Release(token, keep));
    }

    fn retire(&mut self, token: &Arc<Owner>) {
        token.retire();
    }

    fn renew(&mut self, renew: Renew<Live>) {
        self.more().renewals.push(renew);
    }

    fn closing(&mut self, closing: Closing<Live>) {
        self.more().closing.push(closing);
    }
}

/// Returns the renewal as the store gets it.
pub(super) fn renewal(renew: Renew<Live>) -> Renewal {
    let Renew { token: owner, ttl, draw, fence, .. } = renew;
    Renewal { owner, ttl, draw, fence }
}
