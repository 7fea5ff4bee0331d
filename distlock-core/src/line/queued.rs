//! The place of a batch in the store's queue, and the time of the next look at it.

use std::time::Duration;

use super::request::{Denied, Kinds};
use super::shell::{LOOK_DEAF, RESERVATION, Reservation, Shell};
use crate::clock::Moment;

/// The pause after the first fault. Each further fault doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause after a fault.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// R11: the longest pause between looks, because a notification may be lost.
const LOOK: Duration = Duration::from_secs(5);
/// R11: how long after the end of the owner's lease the first in the queue looks.
const LATE: Duration = Duration::from_millis(5);
/// R12: the longest reservation.
const LONGEST_RESERVATION: Duration = Duration::from_secs(8);

/// A batch's place in the store's queue, as far as it is known.
///
/// - At most one `acquire` of a token is under way (R3): while `asking` is set, no look is due.
/// - A hint is never dropped. One that arrives while `asking` is set causes a look after the answer (R4).
/// - `token` was never released (R7). The tokens in `instead_of` and `lost` are to be released.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queued<K: Kinds> {
    /// The batch's token.
    pub token: K::Token,
    /// The reservation with which the token was issued.
    pub reservation: Reservation,
    /// Whether an answer is awaited.
    pub asking: bool,
    /// Whether the lock may be free or reserved for the batch: look at once, or as soon as the answer is there.
    pub hint: bool,
    /// When to look if no hint arrives (R11).
    pub look_at: Moment,
    /// The batch's rank at the last look, and the pause after it. Kept for stores whose first looks come early.
    pub looked: Option<(u64, Duration)>,
    /// The pause after the next fault.
    pub pause: Duration,
    /// The reservation of the batch's next token (R12).
    pub reserve_for: Duration,
    /// Whether the store has said that the token is in the queue.
    pub stands: bool,
    /// `None` until the lock is known to be taken. Then the end of the owner's lease, if that is known.
    pub taken_until: Option<Option<Moment>>,
    /// The reason why the last look had no answer.
    pub trouble: Option<Denied<K::Fault>>,
    /// An earlier token of the batch, to be released after the present one has entered in its place (R6, R12).
    pub instead_of: Option<K::Token>,
    /// The token of a lost lease, until its last holder has given it back (R10).
    pub lost: Option<K::Token>,
}

/// The store's answer to a batch that waits. The fields are those of
/// [`Entered::Queued`](crate::store::Entered::Queued).
pub(super) struct InQueue {
    pub(super) ticket: u64,
    pub(super) remaining: Option<Duration>,
    pub(super) rank: u64,
    pub(super) behind: u64,
    pub(super) added: bool,
}

impl<K: Kinds> Queued<K> {
    /// Creates the place of a token for which no answer has arrived.
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

    /// Plans the next look after one without an answer. `pause` is the present pause, with jitter.
    pub(super) fn failed(&mut self, why: Denied<K::Fault>, now: Moment, pause: Duration) {
        self.trouble = Some(why);
        self.look_at = now.after(pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Returns when to look next.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        match (self.asking, self.hint) {
            (true, _) => Moment::NEVER,
            (false, true) => Moment::from_nanos(0),
            (false, false) => self.look_at,
        }
    }

    /// Marks the place as put back (R12): it was in the queue before, so the lock was reserved for it and not
    /// confirmed in time. The next look is due at once, with a token that has a longer reservation.
    pub(super) fn put_back(&mut self) {
        self.reserve_for = (self.reserve_for * 2).min(LONGEST_RESERVATION);
        self.hint = true;
    }

    /// Returns the pause before the next look (R11).
    pub(super) fn pause_before_look<X: Shell<K>>(
        &mut self,
        remaining: Option<Duration>,
        rank: u64,
        shell: &mut X,
    ) -> Duration {
        let after = if rank == 0 { LATE } else { self.reserve_for };
        let free = remaining.map(|remaining| remaining + after);
        let look = match self.reservation.notified {
            true => shell.jittered(LOOK / 5) + LOOK * 4 / 5,
            false => self.deaf_look(rank, shell),
        };
        free.map_or(look, |free| free.min(look))
    }

    /// Returns the pause before the next look of a process that is not notified. Some stores have cheap looks, and
    /// there the first look comes early. Batches far back in the queue look less often, and each pause is longer
    /// than the one before while the queue does not move.
    fn deaf_look<X: Shell<K>>(&mut self, rank: u64, shell: &mut X) -> Duration {
        let first = shell.first_look();
        if first >= LOOK_DEAF {
            return shell.jittered(LOOK_DEAF);
        }
        let places = u32::try_from(rank).unwrap_or(u32::MAX).saturating_add(1);
        let pause = match self.looked {
            Some((before, pause)) if before == rank => pause * 2,
            _ => first.saturating_mul(places),
        };
        let pause = pause.min(LOOK_DEAF);
        self.looked = Some((rank, pause));
        pause / 2 + shell.jittered(pause / 2)
    }
}
