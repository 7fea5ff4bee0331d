//! One change of a lock's line, and what has to be done once it is over.
//!
//! The line calls its shell in the middle of a change, under the mutex of its shard. Tasks are woken,
//! commands sent and losses reported after that: nothing of a user's runs in between.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::core::{
    Closing, Denied, Enter, Grant, Kinds, Limit, Loss, Renew, Request, Reservation, Shell,
};
use super::lease::Lease;
use super::table::LockTable;
use super::waiter::wake;
use crate::clock::Moment;
use crate::jitter::jittered;
use crate::name::LockName;
use crate::observe::LeaseEvent;
use crate::store::owner::Owner;
use crate::store::{Fault, Renewal, Term};

/// What lines are made of here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Live;

impl Kinds for Live {
    type Token = Arc<Owner>;
    type Caller = Arc<Lease>;
    type Fault = Fault;
}

/// The shell of one lock's line during one change.
pub(super) struct Turn<'a> {
    table: &'a LockTable,
    lock: &'a Arc<LockName>,
    /// When the wait ends of a caller that waits from now on.
    waits_until: Moment,
    /// What is granted now was another caller's here until now.
    pub(super) hands_over: bool,
    /// Nothing but this: one more waits where several wait already.
    pub(super) joins_a_crowd: bool,
    /// Nearly every change wakes one task at most,
    woken: Option<Waker>,
    /// and brings about nothing else.
    more: Option<Box<More>>,
}

/// What few changes bring about.
#[derive(Default)]
struct More {
    woken: Vec<Waker>,
    lost: Vec<(Arc<Lease>, Loss)>,
    shown: Vec<(Arc<Lease>, LeaseEvent)>,
    sent: Vec<Sent>,
    renewals: Vec<Renew<Live>>,
    closing: Vec<Closing<Live>>,
}

/// A command to be sent, in order.
enum Sent {
    Enter(Enter<Live>),
    Release(Arc<Owner>, Option<Duration>),
}

impl<'a> Turn<'a> {
    #[inline]
    pub(super) fn new(table: &'a LockTable, lock: &'a Arc<LockName>) -> Self {
        let waits_until = Moment::NEVER;
        let (hands_over, joins_a_crowd) = (false, false);
        Self { table, lock, waits_until, hands_over, joins_a_crowd, woken: None, more: None }
    }

    pub(super) fn lock(&self) -> &Arc<LockName> {
        self.lock
    }

    /// A caller waits in the line from now on.
    pub(super) fn waits(&mut self, request: &Request) {
        self.waits_until = self.waits_until.min(request.wait_until);
    }

    pub(super) fn waits_until(&self) -> Moment {
        self.waits_until
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// What is to be renewed: the code that made the change sends it.
    pub(super) fn take_renewals(&mut self) -> Vec<Renew<Live>> {
        self.more.as_mut().map(|more| std::mem::take(&mut more.renewals)).unwrap_or_default()
    }

    /// What is to become of a manager's leases that is closed.
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

    /// Has an event shown to the probe of a test, if there is one: before any task is woken for it.
    #[inline]
    pub(super) fn show(&mut self, lease: &Arc<Lease>, event: LeaseEvent) {
        if self.table.observers().probe().is_some() {
            self.more().shown.push((lease.clone(), event));
        }
    }

    /// Has a caller look at its line again.
    pub(super) fn wake_seat(&mut self, lease: &Arc<Lease>) {
        self.wake_up(lease.wake());
    }

    /// Does what the change has brought about. To be called while no mutex is held.
    #[inline]
    pub(super) fn carry_out(self, table: &Arc<LockTable>) {
        match (self.woken, self.more) {
            (woken, Some(more)) => more.carry_out(woken, table),
            (Some(woken), None) => wake(woken),
            (None, None) => {}
        }
    }
}

impl More {
    #[cold]
    fn carry_out(self, first: Option<Waker>, table: &Arc<LockTable>) {
        let Self { woken, lost, shown, sent, .. } = self;
        shown.into_iter().for_each(|(lease, event)| lease.show(table.observers(), event));
        first.into_iter().chain(woken).for_each(wake);
        for command in sent {
            match command {
                Sent::Enter(enter) => table.enter(enter),
                Sent::Release(owner, keep) => table.leave_queue(owner, keep),
            }
        }
        // Last, since an observer may be slow.
        for (lease, loss) in lost {
            lease.report(loss, table);
        }
    }
}

impl Shell<Live> for Turn<'_> {
    fn issue(&mut self, limit: Limit, reservation: Reservation, now: Moment) -> Arc<Owner> {
        self.table.new_owner(self.lock, limit, reservation, now)
    }

    fn number(&mut self) -> u64 {
        self.table.number()
    }

    fn is_notified(&self) -> bool {
        self.table.store().is_notified(self.lock)
    }

    fn first_look(&self) -> Duration {
        self.table.store().first_look()
    }

    fn fences_per_draw(&self) -> u64 {
        self.table.store().fences_per_draw()
    }

    fn needs_renewal(&self) -> bool {
        self.table.needs_renewal()
    }

    fn is_closed(&self) -> bool {
        self.table.is_closed()
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
        seat.account().came(self.hands_over);
        seat.account().begin(now);
        self.wake_up(seat.grant(grant));
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
        self.table.store().begin_term(token, term);
    }

    fn enter(&mut self, enter: Enter<Live>) {
        self.more().sent.push(Sent::Enter(enter));
    }

    fn release(&mut self, token: Arc<Owner>, keep: Option<Duration>) {
        if let Some(keep) = keep {
            self.table.keep_until(&token, self.table.clock().now().after(keep));
        }
        token.retire();
        self.more().sent.push(Sent::Release(token, keep));
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

/// The renewal as the store gets it.
pub(super) fn renewal(renew: Renew<Live>) -> Renewal {
    let Renew { token: owner, ttl, draw, fence, .. } = renew;
    Renewal { owner, ttl, draw, fence }
}
