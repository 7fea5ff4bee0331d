//! What is known of a place in the store's queue, and when to look at it.

use std::time::Duration;

use super::request::{Denied, Kinds};
use super::shell::{LOOK_DEAF, RESERVATION, Reservation, Shell};
use crate::clock::Moment;

/// First pause after a fault; doubled up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// R11: a notification may be lost.
const LOOK: Duration = Duration::from_secs(5);

/// R11: how long after it should be free a lock is looked at.
const LATE: Duration = Duration::from_millis(5);

/// R12: the longest reservation.
pub(super) const LONGEST_RESERVATION: Duration = Duration::from_secs(8);

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

/// What the store says to a batch that waits.
pub(super) struct InQueue {
    pub(super) ticket: u64,
    pub(super) remaining: Option<Duration>,
    pub(super) rank: u64,
    pub(super) behind: u64,
    pub(super) added: bool,
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

    /// R11: how long to wait before the next look.
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

    /// How long a process without messages waits before it looks. Early looks are cheap, and the lock is often
    /// free soon or the queue moves. Later in the queue it looks less often, and ever less while nothing moves.
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
