//! Neighbours in a lock's line: they stand at one place of the store's queue, under one claim.
//!
//! `Leading → Queued ⇄ Owned`. A lock's line in this process is its batches in order of arrival;
//! only the last one may still be open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::claim::Claim;
use super::waiter::{Denied, Waiter, Wish};
use crate::clock::Moment;
use crate::engine::timers::Slot;
use crate::jitter::jittered;
use crate::shrink::shrink_queue;
use crate::store::Fault;
use crate::store::owner::Owner;

/// A batch that was sealed before it owns the lock still lets in who comes within this time: tasks
/// that come back one after the other would else stand alone for ever.
const GRACE: Duration = Duration::from_millis(5);
/// One so many-th again as those whose turn it is are let in during it, within the same time. What a
/// turn costs is the way to it; what this costs the others is less than their waits differ anyway.
/// The bounded local passes of lock cohorting (Dice, Marathe, Shavit, 2012).
const AGAIN: usize = 2;

/// What a lock that is held or waited for is to this process: never empty.
pub(super) struct Line {
    first: Batch,
    rest: VecDeque<Batch>,
}

pub(super) struct Batch {
    /// Stays the same while its claim changes.
    pub(super) number: u64,
    pub(super) claim: Arc<Claim>,
    pub(super) stage: Stage,
    /// Its place in the store's queue; 0 if it has none.
    pub(super) ticket: u64,
    sealed_at: Option<Moment>,
    /// It was granted the lock too late to use it.
    pub(super) late: bool,
    /// In order of arrival; those who left are still among them for a while.
    waiters: VecDeque<Arc<Waiter>>,
    /// How many of them have not left.
    live: usize,
    /// How many more it lets in while it owns the lock, although sealed.
    room: usize,
}

pub(super) enum Stage {
    /// A caller tries by itself; what it wants.
    Leading(Wish),
    /// Entered by the engine, or on its way there.
    Queued(Box<Queued>),
    /// The lock is the claim's; somebody holds it, or will once it was renewed.
    Owned,
}

/// What is known of a place in the store's queue.
pub(super) struct Queued {
    /// An answer is awaited.
    pub(super) asking: bool,
    /// The lock may be free or reserved: look as soon as the answer is there.
    pub(super) hint: bool,
    pub(super) poll_at: Moment,
    pub(super) slot: Option<Slot>,
    /// After the next fault.
    pub(super) pause: Duration,
    /// How long the lock is kept for its claim.
    pub(super) reservation: Duration,
    /// The store has said that it stands there.
    pub(super) stands: bool,
    /// When the present owner's lease ends, as the store said.
    pub(super) taken_until: Option<Option<Moment>>,
    /// Why the last look had no answer.
    pub(super) trouble: Option<Fault>,
    /// An earlier token of this batch, to be released once the present one stands in its place.
    pub(super) instead_of: Option<Arc<Owner>>,
    /// The token that it had and lost, while its last holder has not given it back.
    pub(super) lost: Option<Arc<Owner>>,
}

/// First pause after a fault; doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a reserved lock waits for an owner who can be told.
pub(super) const RESERVATION: Duration = Duration::from_secs(1);

impl Queued {
    pub(super) fn new(instead_of: Option<Arc<Owner>>) -> Box<Self> {
        Box::new(Self {
            asking: false,
            hint: false,
            poll_at: Moment::from_nanos(0),
            slot: None,
            pause: FIRST_PAUSE,
            reservation: RESERVATION,
            stands: false,
            taken_until: None,
            trouble: None,
            instead_of,
            lost: None,
        })
    }

    /// A look had no answer: there is another one after a while.
    pub(super) fn failed(&mut self, fault: Fault, now: Moment) {
        self.trouble = Some(fault);
        self.poll_at = now.after(jittered(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

impl Batch {
    pub(super) fn new(number: u64, claim: Arc<Claim>, stage: Stage) -> Self {
        let (sealed_at, waiters) = (None, VecDeque::new());
        let (ticket, late, live, room) = (0, false, 0, 0);
        Self { number, claim, stage, ticket, sealed_at, late, waiters, live, room }
    }

    /// Whether who arrives now may still stand here.
    pub(super) fn admits(&self, now: Moment) -> bool {
        let Some(sealed_at) = self.sealed_at else { return true };
        let has_room = !self.is_owned() || self.room > 0;
        has_room && now < sealed_at.after(GRACE)
    }

    /// Somebody of another process stands behind it.
    pub(super) fn seal(&mut self, now: Moment) {
        self.sealed_at.get_or_insert(now);
    }

    /// The lock is its claim's. Who took it when it was free has passed others already.
    pub(super) fn owns(&mut self) {
        let stood = matches!(&self.stage, Stage::Queued(queued) if queued.stands);
        self.stage = Stage::Owned;
        self.room = if stood { self.live / AGAIN } else { 0 };
    }

    pub(super) fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned)
    }

    /// Somebody stands in it from now on, whom it admits.
    pub(super) fn push_back(&mut self, waiter: Arc<Waiter>) {
        if self.is_owned() && self.sealed_at.is_some() {
            self.room = self.room.saturating_sub(1);
        }
        self.live += 1;
        self.waiters.push_back(waiter);
    }

    pub(super) fn push_front(&mut self, waiter: Arc<Waiter>) {
        self.live += 1;
        self.waiters.push_front(waiter);
    }

    /// Somebody is left to serve.
    pub(super) fn has_live(&self, now: Moment) -> bool {
        self.waiters.iter().any(|waiter| waiter.is_live(now))
    }

    /// The next one to serve. Those before him who left or are past their time are forgotten.
    pub(super) fn next(&mut self, now: Moment) -> Option<&Arc<Waiter>> {
        while self.waiters.front().is_some_and(|waiter| !waiter.is_live(now)) {
            self.waiters.pop_front();
        }
        self.waiters.front()
    }

    /// The next one was served.
    pub(super) fn served(&mut self) {
        self.waiters.pop_front();
        shrink_queue(&mut self.waiters);
        self.live = self.live.saturating_sub(1);
    }

    /// It has just entered again because this claim was lost.
    pub(super) fn came_from(&mut self, claim: &Arc<Claim>) {
        if let Stage::Queued(queued) = &mut self.stage {
            queued.lost = Some(claim.owner.clone());
        }
    }

    /// Why who waits in it has not got the lock so far, if that is known.
    pub(super) fn verdict(&self, now: Moment) -> Option<Denied> {
        match &self.stage {
            Stage::Leading(_) => None,
            Stage::Owned => {
                Some(Denied::Taken(self.claim.holder().map(|holder| holder.remaining())))
            }
            Stage::Queued(queued) => match (&queued.trouble, queued.taken_until) {
                (Some(trouble), _) => Some(Denied::Fault(trouble.clone())),
                (None, Some(until)) => Some(Denied::Taken(until.map(|until| until.since(now)))),
                (None, None) => None,
            },
        }
    }

    /// One of them left; true if nobody is there any more.
    pub(super) fn left(&mut self) -> bool {
        self.live = self.live.saturating_sub(1);
        // Half of the places empty pays for walking past all of them: constant time on average.
        if self.waiters.len() > 16 && self.waiters.len() / 2 > self.live {
            self.waiters.retain(|waiter| !waiter.has_left());
            shrink_queue(&mut self.waiters);
        }
        self.live == 0
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.live > 0
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.waiters.iter()
    }
}

impl Line {
    pub(super) fn new(first: Batch) -> Self {
        Self { first, rest: VecDeque::new() }
    }

    pub(super) fn push(&mut self, batch: Batch) {
        self.rest.push_back(batch);
    }

    pub(super) fn first(&mut self) -> &mut Batch {
        &mut self.first
    }

    pub(super) fn last(&mut self) -> &mut Batch {
        self.rest.back_mut().unwrap_or(&mut self.first)
    }

    pub(super) fn batches(&mut self) -> impl Iterator<Item = &mut Batch> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    /// How many calls wait in it.
    pub(super) fn waiting(&mut self) -> usize {
        self.batches().map(|batch| batch.live).sum()
    }

    pub(super) fn numbered(&mut self, number: u64) -> Option<&mut Batch> {
        self.batches().find(|batch| batch.number == number)
    }

    pub(super) fn of_claim(&mut self, claim: &Arc<Claim>) -> Option<&mut Batch> {
        self.batches().find(|batch| Arc::ptr_eq(&batch.claim, claim))
    }

    pub(super) fn of_token(&mut self, token: &str) -> Option<&mut Batch> {
        self.batches().find(|batch| batch.claim.owner.token == token)
    }

    /// Takes a batch out; the line is to be forgotten if it was the last one, which is then left in
    /// it.
    pub(super) fn take_out(&mut self, number: u64) -> TakenOut {
        if self.first.number == number {
            return match self.rest.pop_front() {
                Some(next) => TakenOut::One(std::mem::replace(&mut self.first, next)),
                None => TakenOut::Last,
            };
        }
        let at = self.rest.iter().position(|batch| batch.number == number);
        at.and_then(|at| self.rest.remove(at)).map_or(TakenOut::None, TakenOut::One)
    }

    pub(super) fn into_first(self) -> Batch {
        self.first
    }
}

pub(super) enum TakenOut {
    None,
    One(Batch),
    Last,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::LockKey;
    use crate::name::Label;
    use crate::namespace::Namespace;
    use crate::store::Term;

    const START: Moment = Moment::from_nanos(0);

    fn batch(stage: Stage) -> Batch {
        let namespace = Namespace::new("").expect("no prefix");
        let name = namespace.name(Label::Given("test".into()), LockKey::from("k"));
        let claim = Claim::new(name.expect("a key"), "token".to_owned());
        Batch::new(1, Arc::new(claim), stage)
    }

    fn waiter(until: Moment) -> Arc<Waiter> {
        let ttl = Duration::from_secs(1);
        let term = Term { ttl, renewed: true, max_hold: None, min_hold: None };
        let (several, hurried) = (false, false);
        let wanted_until = Moment::NEVER;
        Waiter::new(
            Wish {
                term,
                asked: until,
                wait: until,
                overall: until,
                several,
                wanted_until,
                hurried,
            },
            1,
        )
    }

    #[test]
    fn who_arrives_after_the_seal_stands_behind() {
        let mut batch = batch(Stage::Queued(Queued::new(None)));
        assert!(batch.admits(START));
        batch.seal(START);
        assert!(batch.admits(START), "tasks that come back together stay together");
        // Sealing it again does not make the grace longer.
        batch.seal(START.after(GRACE / 2));
        assert!(!batch.admits(START.after(GRACE)));
    }

    #[test]
    fn a_turn_lets_in_half_as_many_again() {
        let queued = Queued { stands: true, ..*Queued::new(None) };
        let mut batch = batch(Stage::Queued(Box::new(queued)));
        for _ in 0..5 {
            batch.push_back(waiter(Moment::NEVER));
        }
        batch.seal(START);
        batch.owns();
        for _ in 0..2 {
            assert!(batch.admits(START));
            assert!(!batch.admits(START.after(GRACE)), "others have stood behind it for too long");
            batch.push_back(waiter(Moment::NEVER));
        }
        assert!(!batch.admits(START), "it would never come to an end");
    }

    #[test]
    fn who_took_the_lock_at_once_lets_nobody_past_those_behind() {
        let mut batch = batch(Stage::Queued(Queued::new(None)));
        batch.push_back(waiter(Moment::NEVER));
        batch.push_back(waiter(Moment::NEVER));
        batch.owns();
        assert!(batch.admits(START));
        batch.seal(START);
        assert!(!batch.admits(START));
    }

    #[test]
    fn those_past_their_time_are_passed_over() {
        let mut batch = batch(Stage::Owned);
        let (late, patient) = (waiter(START.after(GRACE)), waiter(Moment::NEVER));
        batch.push_back(late);
        batch.push_back(patient.clone());
        let next = batch.next(START.after(GRACE)).expect("one is left");
        assert!(Arc::ptr_eq(next, &patient));
    }

    #[test]
    fn places_of_those_who_left_are_given_back() {
        let mut batch = batch(Stage::Owned);
        let waiters: Vec<_> = (0..1000).map(|_| waiter(Moment::NEVER)).collect();
        waiters.iter().for_each(|waiter| batch.push_back(waiter.clone()));
        for (n, waiter) in waiters.iter().enumerate() {
            waiter.deny(super::super::waiter::Denied::Taken(None));
            assert_eq!(batch.left(), n + 1 == waiters.len());
            let live = waiters.len() - n - 1;
            assert!(batch.waiters.len() <= 2 * live + 17, "{} for {live}", batch.waiters.len());
        }
        assert!(batch.next(START).is_none());
    }

    #[test]
    fn batches_leave_a_line_in_any_order() {
        let mut line = Line::new(batch(Stage::Owned));
        for number in [2, 3] {
            line.push(Batch { number, ..batch(Stage::Queued(Queued::new(None))) });
        }
        assert!(matches!(line.take_out(2), TakenOut::One(batch) if batch.number == 2));
        assert!(matches!(line.take_out(2), TakenOut::None));
        assert!(matches!(line.take_out(1), TakenOut::One(batch) if batch.number == 1));
        assert_eq!(line.first().number, 3);
        assert!(matches!(line.take_out(3), TakenOut::Last));
    }
}
