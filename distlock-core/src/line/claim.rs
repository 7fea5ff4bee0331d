//! A claim: an owner token that owns the lock at the store, and those of this process that hold the
//! lock by it: one after the other (R6), or readers together, each with a deadline of its own.

use std::time::Duration;

use super::holder::{Holder, Holders, Phase};
use super::request::{Denied, Freeing, Grant, Kinds, Request};
use super::shell::{Exchange, Renew, Shell};
use crate::clock::{Moment, nanos};
use crate::store::term::SHORTEST_TTL;
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

/// What came of an attempt to hand a claim to the next waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandedOn {
    /// A waiter has it, or will once it was renewed.
    Yes,
    /// The next one cannot have this claim, but must keep its place.
    Unfit,
    /// No caller waits.
    None,
}

/// What is to be done about a claim that is due.
pub(super) enum Tend {
    Nothing,
    Renew(Duration),
    /// No caller holds it, and it has run out.
    GiveUp,
    /// The lease at the number has run out.
    Expire(i64),
    /// The grant at the number may not have been taken.
    Offered(i64),
    /// The lease at the number was kept for others that did not come.
    Abandon(i64),
}

/// Until when a lease is worth something here that was asked for at `sent`.
pub(super) fn deadline_of(sent: Moment, term: &Term, needs_renewal: bool) -> Moment {
    // Nothing can keep a renewal from being in time where the store is in this process.
    let endless = term.renewed && !needs_renewal;
    if endless { Moment::NEVER } else { deadline(sent, term.stored_for()) }
}

/// The claim of a token that was granted to a caller's own try, or why it is of no use.
#[inline]
pub(super) fn start<K: Kinds, X: Shell<K>>(
    token: K::Token,
    (at, request, seat): (i64, Request, K::Seat),
    fence: u64,
    sent: Moment,
    now: Moment,
    shell: &X,
) -> Result<(Claim<K>, Grant), Denied<K::Fault>> {
    let term = request.stored_term(shell.needs_renewal());
    let granted = (token, request.limit);
    let mut claim = Claim::granted(granted, fence, sent, term, shell.needs_renewal());
    if now >= claim.deadline {
        return Err(Denied::Outlasted);
    }
    let fencing_token = claim.issue().ok_or(Denied::NoFence)?;
    // `close` looks at the line after this: either it sees this claim, or this sees that it has begun.
    if shell.is_closed() {
        return Err(Denied::Closed);
    }
    let grant = claim.hold((at, request, seat), fencing_token, sent);
    Ok((claim, grant))
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

    /// Gives it to the caller that `take` takes from the line, if it is fit for what that one asks of the
    /// store.
    #[inline]
    pub(super) fn offer<X: Shell<K>>(
        &mut self,
        term: &Term,
        now: Moment,
        fresh: Option<Duration>,
        shell: &mut X,
        take: impl FnOnce() -> Option<(i64, Request, K::Seat)>,
    ) -> HandedOn {
        let wanted = term.stored_for();
        let fits = match self.fit(term, fresh.is_some(), now) {
            Fit::AsItIs => true,
            Fit::AfterRenewal => fresh.is_some_and(|ttl| ttl >= wanted) && now < self.deadline,
            Fit::TooLong => return HandedOn::Unfit,
        };
        let Some(fencing_token) = fits.then(|| self.issue()).flatten() else {
            self.await_renewal(wanted, now);
            return HandedOn::Yes;
        };
        let Some(caller) = take() else { return HandedOn::None };
        let mut holder = Holder::new(caller, fencing_token, self.deadline, now);
        holder.offer(now);
        shell.grant(&holder.seat, holder.grant(self.deadline), now);
        self.holders.add(holder);
        HandedOn::Yes
    }

    /// No caller holds the lock by it, or is about to.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.is_held() && self.awaited.is_none()
    }

    pub(super) fn tell_deadlines<X: Shell<K>>(&self, shell: &mut X) {
        for holder in self.holders.iter() {
            shell.extended(&holder.seat, holder.deadline(self.deadline));
        }
    }

    #[inline]
    pub(super) fn release(&self, keep: Option<Duration>) -> Freeing<K> {
        Freeing { token: self.token.clone(), keep, deadline: self.deadline }
    }

    pub(super) fn tend(&mut self, crowded: bool, now: Moment) -> Tend {
        if !self.is_held() && now >= self.deadline {
            return Tend::GiveUp;
        }
        let end = self.deadline;
        if let Some(holder) = self.holders.due(end, now) {
            return match holder.phase {
                _ if now >= holder.deadline(end) => Tend::Expire(holder.at),
                Phase::Offered { .. } => Tend::Offered(holder.at),
                Phase::Part { .. } => Tend::Abandon(holder.at),
                Phase::InUse => Tend::Nothing,
            };
        }
        if self.renewal_at(crowded) > now {
            return Tend::Nothing;
        }
        match self.renewal(now) {
            Some(ttl) => Tend::Renew(ttl),
            // Never shorter than it is: this draws a counter value and extends nothing.
            None if self.needs_fence() => Tend::Renew(SHORTEST_TTL),
            // The caller that wanted it has gone.
            None => {
                self.holders.look();
                Tend::Nothing
            }
        }
    }

    /// R10, R5: asks for more time, and for a counter value if those under the present one run short.
    pub(super) fn renew<X: Shell<K>>(&mut self, ttl: Duration, shell: &mut X) {
        let draw = self.draws();
        self.renewal = Renewal::Sent { draw };
        let Self { token, last_fence: fence, deadline, .. } = self;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        shell.renew(Renew { token, ttl, draw, fence, deadline });
    }

    /// It goes on under the new token, with which others may have the lock as well.
    pub(super) fn goes_on(
        &mut self,
        at: i64,
        exchange: &Exchange<K>,
        (fence, sent): (u64, Moment),
        needs_renewal: bool,
    ) -> Option<Grant> {
        self.token = exchange.new.clone();
        self.limit = Limit::READ;
        self.exchange = None;
        (self.fence, self.ticket) = (self.fence.max(fence), fence);
        self.last_fence = self.last_fence.max(fence);
        // What the old token had is gone, also if it was longer.
        self.deadline = deadline_of(sent, &exchange.term, needs_renewal);
        (self.confirmed, self.term) = (sent, exchange.term);
        self.renewal = Renewal::Idle;
        let fencing_token = self.issue()?;
        let end = self.deadline;
        self.holders.change(at, |holder| {
            holder.request.limit = Limit::READ;
            holder.fencing_token = fencing_token;
            holder.grant(end)
        })
    }
}

/// At least one claim. Nearly every batch has one, which needs no list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claims<K: Kinds> {
    pub(super) first: Claim<K>,
    rest: Vec<Claim<K>>,
}

impl<K: Kinds> Claims<K> {
    pub(super) fn one(claim: Claim<K>) -> Self {
        Self { first: claim, rest: Vec::new() }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Claim<K>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    #[cfg(feature = "model")]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Claim<K>> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, is: impl Fn(&Claim<K>) -> bool) -> Option<&mut Claim<K>> {
        if is(&self.first) {
            return Some(&mut self.first);
        }
        self.rest.iter_mut().find(|claim| is(claim))
    }

    /// When the first of them is to be looked at.
    #[inline]
    pub(super) fn due(&self, crowded: bool) -> Moment {
        let first = self.first.due(crowded);
        self.rest.iter().map(|claim| claim.due(crowded)).fold(first, Moment::min)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// The oldest.
    pub fn first(&self) -> &Claim<K> {
        &self.first
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Claim<K>> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.rest.get_mut(index),
        }
    }

    #[inline]
    pub(super) fn index_of(&self, is: impl Fn(&Claim<K>) -> bool) -> Option<usize> {
        self.iter().position(is)
    }

    pub(super) fn push(&mut self, claim: Claim<K>) {
        self.rest.push(claim);
    }

    /// Takes one of several out; none is taken from a batch that has no other.
    pub(super) fn take(&mut self, index: usize) -> Option<Claim<K>> {
        if self.rest.is_empty() {
            return None;
        }
        match index.checked_sub(1) {
            None => Some(std::mem::replace(&mut self.first, self.rest.remove(0))),
            Some(index) => (index < self.rest.len()).then(|| self.rest.remove(index)),
        }
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Claim<K>> {
        std::iter::once(self.first).chain(self.rest)
    }
}
