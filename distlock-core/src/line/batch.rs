//! Neighbours in a lock's line: they stand at one place of the store's queue, under one token.

use std::time::Duration;

use super::{Claims, Denied, Kinds, RESERVATION, Request, Reservation, Waiters, Waiting};
use crate::clock::Moment;
use crate::store::Limit;

/// R4: a batch that was sealed before it owns the lock still admits arrivals within this time: tasks
/// that come back one after the other would else stand alone for ever.
const GRACE: Duration = Duration::from_millis(5);
/// R4: while a batch owns the lock it admits at most this part of its size again, within the same time.
/// The bounded local passes of lock cohorting (Dice, Marathe, Shavit, 2012): the way to the lock is most
/// of what a turn costs, and what this costs the others is less than their waits differ anyway.
const LATE_ADMISSION_DIVISOR: usize = 2;
/// First pause after a fault; doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Callers that arrived one after the other and want the lock with the same limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch<K: Kinds> {
    /// Stays the same while its token changes.
    pub number: u64,
    /// How many may hold the lock when one of it is let in.
    pub limit: Limit,
    /// Its place in the store's queue; 0 if it has none.
    pub ticket: u64,
    /// Since when another process stands behind it.
    pub sealed_at: Option<Moment>,
    /// R3: it was granted the lock too late to use it.
    pub late: bool,
    /// How many more it admits while it owns the lock, although sealed (R4).
    pub room: usize,
    /// Its callers, but for the holder.
    pub waiters: Waiters<K>,
    /// How far it has come.
    pub stage: Stage<K>,
}

/// How far a batch has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
// Nearly every batch owns the lock nearly all the time, and should not be taken to the heap for it.
#[allow(clippy::large_enum_variant)]
pub enum Stage<K: Kinds> {
    /// A caller tries by itself (R2).
    Leading {
        /// Under this token.
        token: K::Token,
        /// With which it was issued.
        reservation: Reservation,
        /// The caller.
        leader: Waiting<K>,
    },
    /// It is in the store's queue, or on its way there.
    Queued(Box<Queued<K>>),
    /// Its claims own the lock; callers hold it, or will once it was renewed.
    Owned(Claims<K>),
}

/// What is known of a place in the store's queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queued<K: Kinds> {
    /// Under this token.
    pub token: K::Token,
    /// With which it was issued.
    pub reservation: Reservation,
    /// An answer is awaited.
    pub asking: bool,
    /// The lock may be free or reserved: look as soon as the answer is there.
    pub hint: bool,
    /// When to look if nothing happens (R11).
    pub look_at: Moment,
    /// The batch's position at its last look, and the pause after that look. Used where the first looks come
    /// early.
    pub looked: Option<(u64, Duration)>,
    /// After the next fault.
    pub pause: Duration,
    /// How long the lock is reserved for its next token (R12).
    pub reserve_for: Duration,
    /// The store has said that it stands there.
    pub stands: bool,
    /// When the present owner's lease ends, if the store has said so; the outer `None` if it has not
    /// even said that there is one.
    pub taken_until: Option<Option<Moment>>,
    /// Why the last look had no answer.
    pub trouble: Option<Denied<K::Fault>>,
    /// An earlier token of this batch, to be released once the present one stands in its place.
    pub instead_of: Option<K::Token>,
    /// The token that it had and lost, until its last holder has given it back.
    pub lost: Option<K::Token>,
}

impl<K: Kinds> Queued<K> {
    #[inline]
    pub(super) fn new(token: K::Token, reservation: Reservation) -> Self {
        Self {
            token,
            reservation,
            asking: false,
            hint: false,
            look_at: Moment::from_nanos(0),
            looked: None,
            pause: FIRST_PAUSE,
            reserve_for: RESERVATION,
            stands: false,
            taken_until: None,
            trouble: None,
            instead_of: None,
            lost: None,
        }
    }

    /// A look had no answer: there is another one after a while. `pause` is the present one, at random.
    pub(super) fn failed(&mut self, why: Denied<K::Fault>, now: Moment, pause: Duration) {
        self.trouble = Some(why);
        self.look_at = now.after(pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// When to look next.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        match (self.asking, self.hint) {
            (true, _) => Moment::NEVER,
            (false, true) => Moment::from_nanos(0),
            (false, false) => self.look_at,
        }
    }
}

impl<K: Kinds> Batch<K> {
    #[inline]
    pub(super) fn new(number: u64, limit: Limit, stage: Stage<K>) -> Self {
        let (ticket, sealed_at, late, room) = (0, None, false, 0);
        Self { number, limit, ticket, sealed_at, late, room, waiters: Waiters::new(), stage }
    }

    /// R4: whether a caller that arrives now may still stand here.
    pub(super) fn admits(&self, now: Moment) -> bool {
        let Some(sealed_at) = self.sealed_at else { return true };
        let has_room = !self.is_owned() || self.room > 0;
        has_room && now < sealed_at.after(GRACE)
    }

    /// R4: another process stands behind it.
    pub(super) fn seal(&mut self, now: Moment) {
        self.sealed_at.get_or_insert(now);
    }

    /// R4: a caller joins that the batch admits.
    #[inline]
    pub(super) fn join(&mut self, at: i64, request: Request, seat: K::Seat) {
        if self.is_owned() && self.sealed_at.is_some() {
            self.room = self.room.saturating_sub(1);
        }
        self.waiters.push_back(at, request, seat);
    }

    /// Its claim owns the lock. A batch that took a free lock has passed others already (R4); and a reader
    /// delays no one but a writer that waits for all readers to end.
    #[inline]
    pub(super) fn owns(&mut self, claims: Claims<K>) {
        let stood = matches!(&self.stage, Stage::Queued(queued) if queued.stands);
        let admits = stood && !self.limit.is_read();
        self.room = if admits { self.waiters.live() / LATE_ADMISSION_DIVISOR } else { 0 };
        self.stage = Stage::Owned(claims);
    }

    /// The lock is its claims'.
    pub fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned(_))
    }

    /// Under how many tokens it stands at the store.
    pub(super) fn places(&self) -> usize {
        self.claims().map_or(1, Claims::count)
    }

    /// Others of this process wait behind the holder.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiters.live() > 0
    }

    pub(super) fn queued(&mut self) -> Option<&mut Queued<K>> {
        match &mut self.stage {
            Stage::Queued(queued) => Some(queued),
            Stage::Leading { .. } | Stage::Owned(_) => None,
        }
    }

    /// The claims by which it owns the lock.
    pub fn claims(&self) -> Option<&Claims<K>> {
        match &self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    pub(super) fn claims_mut(&mut self) -> Option<&mut Claims<K>> {
        match &mut self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// The token under which it stands at the store: asks, or owns.
    pub fn is_of(&self, is: &impl Fn(&K::Token) -> bool) -> bool {
        match &self.stage {
            Stage::Leading { token, .. } => is(token),
            Stage::Queued(queued) => is(&queued.token),
            Stage::Owned(claims) => claims.iter().any(|claim| is(&claim.token)),
        }
    }

    /// Why a caller that waits in it has not got the lock so far, if that is known.
    pub(super) fn verdict(&self, now: Moment) -> Option<Denied<K::Fault>> {
        match &self.stage {
            Stage::Leading { .. } => None,
            Stage::Owned(claims) => {
                let claim = claims.first();
                Some(Denied::Taken(claim.is_held().then(|| claim.remaining(now))))
            }
            Stage::Queued(queued) => match (&queued.trouble, queued.taken_until) {
                (Some(trouble), _) => Some(trouble.clone()),
                (None, Some(until)) => Some(Denied::Taken(until.map(|until| until.since(now)))),
                (None, None) => None,
            },
        }
    }

    /// When it is to be looked at next.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        match &self.stage {
            Stage::Leading { .. } => Moment::NEVER,
            Stage::Queued(queued) => queued.due(),
            Stage::Owned(claims) => claims.due(self.is_crowded()),
        }
    }
}
