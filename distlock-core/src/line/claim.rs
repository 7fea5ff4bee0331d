//! A claim: an owner token that owns the lock at the store, and those of this process that hold the
//! lock by it: one after the other (R6), or readers together, each with a deadline of its own.

use std::time::Duration;

use super::holder::Holder;
use super::holders::Holders;
use super::{Grant, Kinds, Request};
use crate::clock::{Moment, nanos};
use crate::store::owner::TOKENS_PER_FENCE;
use crate::store::term::deadline;
use crate::store::{Limit, Term};

/// While others of this process wait behind the holder, the lease is kept young enough to be handed
/// on as it is. In ns, as is how soon it may be renewed again.
const YOUNG: u64 = 500_000_000;
const SOONEST: u64 = 5_000_000;
/// A lease that was not confirmed for so long is renewed before it is handed on.
const STALE: Duration = Duration::from_secs(1);
/// When to try again to renew a claim that waiters need renewed.
const RETRY_AWAITED: Duration = Duration::from_millis(50);

/// An owner token that owns the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim<K: Kinds> {
    /// What is stored as the lock's value, or in it.
    pub token: K::Token,
    /// How many may have held the lock when it was let in.
    pub limit: Limit,
    /// The counter value that its fencing tokens are counted under.
    pub fence: u64,
    /// The last counter value that was drawn with it: those up to there are its own as well.
    pub last_fence: u64,
    /// The first counter value that it was granted with, as a ticket for the waiters behind it.
    pub ticket: u64,
    /// The last fencing token that was given out under it.
    pub issued: u64,
    /// Until when it is ours.
    pub deadline: Moment,
    /// When the last command was sent to which the store said that it owns the lock.
    pub confirmed: Moment,
    /// When the last reader joined the others that hold the lock by it.
    pub joined: Moment,
    /// The terms of the holder that it was granted for.
    pub term: Term,
    /// What the engine is about.
    pub renewal: Renewal,
    /// The token that it may be owned by instead: the store was asked to exchange them.
    pub exchange: Option<K::Token>,
    /// The next waiter gets it once it was renewed to so much (R6).
    pub awaited: Option<Duration>,
    /// `min_hold` of those that held the lock by it, while others still do.
    pub free_from: Option<Moment>,
    /// Whose it is at present.
    pub holders: Holders<K>,
}

/// Whether a renewal is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// None is.
    Idle,
    /// Its answer is awaited.
    Sent {
        /// It is to draw a counter value.
        draw: bool,
    },
    /// The last one has failed.
    Failed {
        /// When to try again.
        retry_at: Moment,
        /// It was to draw a counter value: the next one does not, because the counter may be what is
        /// wrong.
        draw: bool,
    },
}

/// Whether a claim can be handed to the next holder (R6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    AsItIs,
    /// Too little is left of it, or it was not confirmed for too long.
    AfterRenewal,
    /// More is left than was asked for, and a lease in use is never shortened.
    TooLong,
}

/// Until when a lease is worth something here that was asked for at `sent`.
pub(super) fn deadline_of(sent: Moment, term: &Term, needs_renewal: bool) -> Moment {
    // Nothing can keep a renewal from being in time where the store is in this process.
    let endless = term.renewed && !needs_renewal;
    if endless { Moment::NEVER } else { deadline(sent, term.stored_for()) }
}

impl<K: Kinds> Claim<K> {
    /// The store granted it in answer to a command sent at `sent`.
    #[inline]
    pub(super) fn granted(
        (token, limit): (K::Token, Limit),
        fence: u64,
        sent: Moment,
        term: Term,
        needs_renewal: bool,
    ) -> Self {
        Self {
            token,
            limit,
            fence,
            last_fence: fence,
            ticket: fence,
            issued: 0,
            deadline: deadline_of(sent, &term, needs_renewal),
            confirmed: sent,
            joined: Moment::from_nanos(0),
            term,
            renewal: Renewal::Idle,
            exchange: None,
            awaited: None,
            free_from: None,
            holders: Holders::None,
        }
    }

    /// The store confirmed a renewal that was sent at `sent`. Never shortens; too late changes nothing.
    pub(super) fn renewed(&mut self, sent: Moment, ttl: Duration) {
        self.deadline = self.deadline.max(deadline(sent, ttl));
        self.confirmed = self.confirmed.max(sent);
    }

    /// R5: so many counter values were drawn for it, of which this is the last.
    pub(super) fn drawn(&mut self, last: u64, count: u64) {
        if last > self.last_fence {
            self.fence = self.fence.max(last - (count - 1));
            self.last_fence = last;
        }
    }

    /// A fencing token for the next holder; `None` if the counter value has no more. Readers that hold
    /// the lock by one claim have the same one (R5).
    #[inline]
    pub(super) fn issue(&mut self) -> Option<u64> {
        let first = self.fence * TOKENS_PER_FENCE;
        if self.limit.is_read() {
            return Some(first);
        }
        let next = first.max(self.issued + 1);
        if next >= (self.last_fence + 1) * TOKENS_PER_FENCE {
            return None;
        }
        self.issued = next;
        Some(next)
    }

    /// No later holder gets a fencing token as low as this one. Readers have no order among them.
    pub(super) fn outdo(&mut self, fencing_token: u64) {
        if !self.limit.is_read() {
            self.issued = self.issued.max(fencing_token);
        }
    }

    /// R5: half of the fencing tokens under its last counter value are used.
    pub(super) fn needs_fence(&self) -> bool {
        self.issued >= self.last_fence * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2
    }

    /// Whether the next renewal is to draw a counter value. Every other one does where that fails: a
    /// lease that is held does not depend on it.
    pub(super) fn draws(&self) -> bool {
        let failed = matches!(self.renewal, Renewal::Failed { draw: true, .. });
        self.needs_fence() && !(failed && self.is_held())
    }

    /// A caller holds the lock by it.
    pub fn is_held(&self) -> bool {
        !matches!(self.holders, Holders::None)
    }

    /// R6: whether it can go to a holder on these terms. It is `fresh` if the store has just confirmed
    /// it.
    #[inline]
    pub(super) fn fit(&self, term: &Term, fresh: bool, now: Moment) -> Fit {
        let joins = self.limit.is_read();
        if self.deadline == Moment::NEVER {
            // What the store keeps without an end it keeps on the terms that it was asked for.
            let endless = term.renewed && term.max_hold.is_none() && term.stored_for() == term.ttl;
            let same = self.term == *term && (fresh || endless);
            return if same || joins { Fit::AsItIs } else { Fit::TooLong };
        }
        // In whole nanoseconds: this is asked at every hand-over, and a `Duration` is slow to divide.
        let left = self.deadline.as_nanos().saturating_sub(now.as_nanos());
        let wanted = nanos(term.stored_for());
        let enough = if term.renewed { wanted / 10 * 9 } else { wanted / 100 * 99 };
        let too_long = wanted.saturating_add((wanted / 10).max(100_000_000));
        if left > too_long && !joins {
            Fit::TooLong
        } else if left < enough || now.since(self.confirmed) > STALE {
            Fit::AfterRenewal
        } else {
            Fit::AsItIs
        }
    }

    /// R5: a caller that comes for it itself holds it from `since` on.
    #[inline]
    pub(super) fn hold(
        &mut self,
        caller: (i64, Request, K::Seat),
        fencing_token: u64,
        since: Moment,
    ) -> Grant {
        let holder = Holder::new(caller, fencing_token, self.deadline, since);
        let grant = holder.grant(self.deadline);
        self.holders.add(holder);
        grant
    }

    /// A waiter gets it once it has been renewed to `ttl`.
    pub(super) fn await_renewal(&mut self, ttl: Duration, now: Moment) {
        self.awaited = self.awaited.max(Some(ttl));
        if let Renewal::Failed { retry_at, .. } = &mut self.renewal {
            *retry_at = now;
        }
    }

    /// `min_hold`: for how long the store is to keep the lock after the last holder has given it back.
    pub(super) fn keep(&self, now: Moment) -> Option<Duration> {
        let left = self.free_from?.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// How much of it is left.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        let end = match &self.holders {
            Holders::One(holder) => holder.deadline(self.deadline),
            Holders::None | Holders::Several(_) => self.deadline,
        };
        match (end, &self.holders) {
            // It has no end, which is to say its whole ttl at any time.
            (Moment::NEVER, Holders::None) => self.term.ttl,
            (Moment::NEVER, holders) => holders.ttl(),
            (end, _) => end.since(now),
        }
    }

    /// R10: when to renew it next, if that would move a holder's deadline, or a waiter needs it.
    #[inline]
    pub(super) fn renewal_at(&self, crowded: bool) -> Moment {
        let at_once = self.awaited.is_some() || self.is_held() && self.needs_fence();
        let wanted = at_once || self.deadline < self.holders.renewed_until();
        match self.renewal {
            // A renewal of one of the two would say that the lock is not ours.
            _ if !wanted || self.exchange.is_some() => Moment::NEVER,
            Renewal::Sent { .. } => Moment::NEVER,
            Renewal::Failed { retry_at, .. } => retry_at,
            Renewal::Idle if at_once => Moment::from_nanos(0),
            Renewal::Idle => self.next_renewal(self.holders.ttl(), crowded),
        }
    }

    /// Some time after the last renewal, on a grid, so that leases taken one after the other are
    /// renewed together in one pipeline.
    #[inline]
    fn next_renewal(&self, ttl: Duration, crowded: bool) -> Moment {
        let ttl = nanos(ttl);
        // A caller that joins without asking does not know what has come to the queue meanwhile.
        let period = match crowded || self.joined > self.confirmed {
            true => (ttl / 10).clamp(SOONEST, YOUNG),
            false => ttl / 3,
        };
        // A power of two: every change of a line asks for this, and a division is slow.
        let grid = 1 << (period / 8).max(1_000_000).ilog2();
        let due = self.confirmed.as_nanos().saturating_add(period);
        Moment::from_nanos(due & !(grid - 1))
    }

    /// R10: how long a renewal is to be for, if there is need for one.
    pub(super) fn renewal(&self, now: Moment) -> Option<Duration> {
        let renewable = |holder: &&Holder<K>| holder.is_renewable(self.deadline);
        let holders = self.holders.iter().filter(renewable);
        let wanted = holders.map(|holder| holder.capped(holder.request.term.ttl, now)).max();
        wanted.max(self.awaited)
    }

    /// When it is to be looked at next.
    #[inline]
    pub(super) fn due(&self, crowded: bool) -> Moment {
        self.deadline.min(self.holders.until()).min(self.renewal_at(crowded))
    }

    /// When to try a failed renewal again, inside what is left of the lease.
    pub(super) fn retry_at(&self, now: Moment) -> Moment {
        if self.awaited.is_some() {
            return now.after(RETRY_AWAITED);
        }
        let pause = self.holders.ttl() / 20;
        let pause = pause.clamp(Duration::from_millis(5), Duration::from_secs(1));
        now.after(pause).min(self.deadline).min(self.holders.until().max(now))
    }
}
