//! Claims: the owner tokens by which this process owns a lock at the store.
//!
//! Callers hold the lock by a claim: one after the other (R6), or several readers at once, each with a deadline
//! of its own.

use std::time::Duration;

use super::holder::{Holders, LocalHolder, Phase, Recipient};
use super::request::{Denied, Freeing, Grant, Kinds};
use super::shell::{Downgrade, Renew, Shell};
use crate::clock::{Moment, nanos};
use crate::store::owner::TOKENS_PER_FENCE;
use crate::store::term::{SHORTEST_TTL, deadline};
use crate::store::{Limit, Term};

/// R10: the longest time between renewals while callers of this process wait behind the holder, in ns. It keeps
/// the lease fit to be handed over as it is.
const YOUNG: u64 = 500_000_000;
/// The shortest time between renewals, in ns.
const SOONEST: u64 = 5_000_000;
/// R6: a lease whose last confirmation is older than this is renewed before it is handed over.
const STALE: Duration = Duration::from_secs(1);

/// How long to wait before a failed renewal is sent again if a waiter depends on it.
const RETRY_AWAITED: Duration = Duration::from_millis(50);

/// An owner token that owns the lock at the store, and its holders in this process.
///
/// - Its deadline is counted from before the command was sent that the store confirmed last, and never moves
///   back (I1), except that a downgrade replaces it.
/// - Its fencing tokens are those of the counter values from `fence` to `last_fence`. `issued` only grows, so each
///   holder gets a higher one than the holders before it (I6). Readers share the first one.
/// - While `exchange` is set, either token may own the lock: the claim is neither renewed nor handed over.
/// - At most one renewal is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim<K: Kinds> {
    /// The token, which the store keeps as the lock's value or as a member of it.
    pub token: K::Token,
    /// The limit with which the token was let in.
    pub limit: Limit,
    /// The first counter value whose fencing tokens are the claim's.
    pub fence: u64,
    /// The last counter value whose fencing tokens are the claim's: a renewal draws several at once (R5).
    pub last_fence: u64,
    /// The counter value of the grant. Waiters behind it enter the queue with this as their ticket (R6, R10).
    pub ticket: u64,
    /// The last fencing token that a holder got.
    pub issued: u64,
    /// The end of the lease.
    pub deadline: Moment,
    /// When the last command was sent by which the store confirmed the lease.
    pub confirmed: Moment,
    /// When the last reader joined other readers without a command.
    pub joined: Moment,
    /// The terms on which the store keeps the lock.
    pub term: Term,
    /// The state of the renewal.
    pub renewal: RenewalState,
    /// The reader's token that may own the lock instead, because the store was asked to exchange them.
    pub exchange: Option<K::Token>,
    /// The time to live that a renewal has to confirm before the next waiter gets the lock (R6).
    pub awaited: Option<Duration>,
    /// The end of the longest `min_hold` of holders that are done.
    pub free_from: Option<Moment>,
    /// The callers that hold the lock by this claim.
    pub holders: Holders<K>,
}

/// The state of a claim's renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RenewalState {
    /// No renewal is under way.
    Idle,
    /// A renewal was sent, and its answer is awaited.
    Sent {
        /// Whether it draws counter values.
        draw: bool,
    },
    /// The last renewal failed. That is not a loss: the old deadline stands (R10).
    Failed {
        /// When to send the next one.
        retry_at: Moment,
        /// Whether it was to draw counter values. Then the next one does not, because the fault may be the
        /// counter's.
        draw: bool,
    },
}

/// The fitness of a claim for a next holder (R6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The claim can be handed over as it is.
    AsItIs,
    /// Too little time is left, or the last confirmation is too old.
    AfterRenewal,
    /// More time is left than was asked for, and a lease in use is never shortened.
    TooLong,
}

/// The outcome of handing a claim to the next waiter of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandedOn {
    /// A waiter has the claim, or gets it after a renewal.
    Yes,
    /// The claim is of no use to the next waiter, which keeps its place in the queue.
    Unfit,
    /// No waiter is left.
    None,
}

/// The next action that is due for a claim. Numbers are those of callers in their batch.
pub(super) enum DueAction {
    /// No action is due.
    Nothing,
    /// Renew the lease to this time to live (R10).
    Renew(Duration),
    /// Give the claim up: it ran out before a renewal, and no caller holds it.
    GiveUp,
    /// End the lease of this holder, whose time is over (R10).
    Expire(i64),
    /// Take the grant back from this caller if it has not taken it (R5).
    PassOver(i64),
    /// End the lease of this caller, which did not get the other locks that it asked for.
    Abandon(i64),
}

/// Returns the deadline of a lease that was asked for at `sent`.
pub(super) fn deadline_of(sent: Moment, term: &Term, needs_renewal: bool) -> Moment {
    // A store inside this process renews a lease on its own, so it cannot be late.
    let endless = term.renewed && !needs_renewal;
    if endless { Moment::NEVER } else { deadline(sent, term.stored_for()) }
}

impl<K: Kinds> Claim<K> {
    /// Returns the claim of a token that the store granted to a caller's own attempt (R2), held by that caller; or
    /// the reason why the grant is of no use.
    #[inline]
    pub(super) fn start<X: Shell<K>>(
        token: K::Token,
        recipient: Recipient<K>,
        fence: u64,
        sent: Moment,
        now: Moment,
        shell: &X,
    ) -> Result<(Self, Grant), Denied<K::Fault>> {
        let term = recipient.request.stored_term(shell.needs_renewal());
        let granted = (token, recipient.request.limit);
        let mut claim = Self::granted(granted, fence, sent, term, shell.needs_renewal());
        if now >= claim.deadline {
            return Err(Denied::Outlasted);
        }
        let fencing_token = claim.issue().ok_or(Denied::NoFence)?;
        // A manager closes its lines after it says that it is closed, so either that sees this claim or this sees
        // that the manager is closed.
        if shell.is_closed() {
            return Err(Denied::Closed);
        }
        let grant = claim.hold(recipient, fencing_token, sent);
        Ok((claim, grant))
    }

    /// Creates the claim of a token that the store granted in answer to a command sent at `sent`.
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
            renewal: RenewalState::Idle,
            exchange: None,
            awaited: None,
            free_from: None,
            holders: Holders::None,
        }
    }

    /// Extends the lease by a renewal that was sent at `sent` and confirmed. An answer that is late changes
    /// nothing, because the lease is never shortened.
    pub(super) fn renewed(&mut self, sent: Moment, ttl: Duration) {
        self.deadline = self.deadline.max(deadline(sent, ttl));
        self.confirmed = self.confirmed.max(sent);
    }

    /// Adds `count` counter values that were drawn for the claim, up to `last` (R5).
    pub(super) fn drawn(&mut self, last: u64, count: u64) {
        if last > self.last_fence {
            self.fence = self.fence.max(last - (count - 1));
            self.last_fence = last;
        }
    }

    /// Returns a fencing token for the next holder, or `None` if the claim's counter values have no more. Readers
    /// get the same one (R5).
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

    /// Makes the fencing tokens of later holders higher than this one. Readers have no order among them.
    pub(super) fn outdo(&mut self, fencing_token: u64) {
        if !self.limit.is_read() {
            self.issued = self.issued.max(fencing_token);
        }
    }

    /// Returns whether half of the fencing tokens of the last counter value are used, so that a renewal draws more
    /// (R5).
    pub(super) fn needs_fence(&self) -> bool {
        self.issued >= self.last_fence * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2
    }

    /// Returns whether the next renewal draws counter values. After a failure every other renewal of a held lease
    /// does without, because the lease does not depend on them.
    pub(super) fn draws(&self) -> bool {
        let failed = matches!(self.renewal, RenewalState::Failed { draw: true, .. });
        self.needs_fence() && !(failed && self.is_held())
    }

    /// Returns whether a caller holds the lock by this claim.
    pub fn is_held(&self) -> bool {
        !matches!(self.holders, Holders::None)
    }

    /// Returns whether the claim can go to a holder on these terms (R6). It is `fresh` if the store has just
    /// confirmed it.
    #[inline]
    pub(super) fn fit(&self, term: &Term, fresh: bool, now: Moment) -> Fit {
        let joins = self.limit.is_read();
        if self.deadline == Moment::NEVER {
            // A lease without an end cannot be measured, so the terms are compared.
            let endless = term.renewed && term.max_hold.is_none() && term.stored_for() == term.ttl;
            let same = self.term == *term && (fresh || endless);
            return if same || joins { Fit::AsItIs } else { Fit::TooLong };
        }
        // Whole nanoseconds, because every hand-over comes here and a `Duration` is slow to divide.
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

    /// Makes a caller the holder from `since` on. It has asked by itself, so it need not take an offer (R5).
    #[inline]
    pub(super) fn hold(
        &mut self,
        recipient: Recipient<K>,
        fencing_token: u64,
        since: Moment,
    ) -> Grant {
        let holder = LocalHolder::new(recipient, fencing_token, self.deadline, since);
        let grant = holder.grant(self.deadline);
        self.holders.add(holder);
        grant
    }

    /// Keeps the claim for a waiter that gets it once the lease is renewed to `ttl` (R6).
    pub(super) fn await_renewal(&mut self, ttl: Duration, now: Moment) {
        self.awaited = self.awaited.max(Some(ttl));
        if let RenewalState::Failed { retry_at, .. } = &mut self.renewal {
            *retry_at = now;
        }
    }

    /// Returns how long the store has to keep the lock after its release, for the `min_hold` of holders that are
    /// done.
    pub(super) fn keep(&self, now: Moment) -> Option<Duration> {
        let left = self.free_from?.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Returns how long the lease still lasts.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        let end = match &self.holders {
            Holders::One(holder) => holder.deadline(self.deadline),
            Holders::None | Holders::Several(_) => self.deadline,
        };
        match (end, &self.holders) {
            // A lease without an end always has its whole ttl left.
            (Moment::NEVER, Holders::None) => self.term.ttl,
            (Moment::NEVER, holders) => holders.ttl(),
            (end, _) => end.since(now),
        }
    }

    /// Returns when to renew the lease next (R10), or never if no holder's deadline would move and no waiter needs
    /// it. The batch is `crowded` if callers wait behind the holder.
    #[inline]
    pub(super) fn renewal_at(&self, crowded: bool) -> Moment {
        let at_once = self.awaited.is_some() || self.is_held() && self.needs_fence();
        let wanted = at_once || self.deadline < self.holders.renewed_until();
        match self.renewal {
            // The renewal of one of the two tokens could be answered with a no although the other owns the lock.
            _ if !wanted || self.exchange.is_some() => Moment::NEVER,
            RenewalState::Sent { .. } => Moment::NEVER,
            RenewalState::Failed { retry_at, .. } => retry_at,
            RenewalState::Idle if at_once => Moment::from_nanos(0),
            RenewalState::Idle => self.next_renewal(self.holders.ttl(), crowded),
        }
    }

    /// Returns when to renew a lease of this ttl. The moment lies on a grid, so that leases that were taken one
    /// after the other are renewed together, in one write.
    #[inline]
    fn next_renewal(&self, ttl: Duration, crowded: bool) -> Moment {
        let ttl = nanos(ttl);
        // A reader that joined without a command cannot know whether a writer waits behind it by now. The answer to
        // a renewal says so (R10).
        let period = match crowded || self.joined > self.confirmed {
            true => (ttl / 10).clamp(SOONEST, YOUNG),
            false => ttl / 3,
        };
        // A power of two, because every change of a line comes here and a division is slow.
        let grid = 1 << (period / 8).max(1_000_000).ilog2();
        let due = self.confirmed.as_nanos().saturating_add(period);
        Moment::from_nanos(due & !(grid - 1))
    }

    /// Returns the time to live to renew the lease to (R10), or `None` if no holder or waiter needs a renewal.
    pub(super) fn renewal(&self, now: Moment) -> Option<Duration> {
        let renewable = |holder: &&LocalHolder<K>| holder.is_renewable(self.deadline);
        let holders = self.holders.iter().filter(renewable);
        let wanted = holders.map(|holder| holder.capped(holder.request.term.ttl, now)).max();
        wanted.max(self.awaited)
    }

    /// Returns when something is due for this claim.
    #[inline]
    pub(super) fn due(&self, crowded: bool) -> Moment {
        self.deadline.min(self.holders.until()).min(self.renewal_at(crowded))
    }

    /// Returns when to send a failed renewal again, within what is left of the lease.
    pub(super) fn retry_at(&self, now: Moment) -> Moment {
        if self.awaited.is_some() {
            return now.after(RETRY_AWAITED);
        }
        let pause = self.holders.ttl() / 20;
        let pause = pause.clamp(Duration::from_millis(5), Duration::from_secs(1));
        now.after(pause).min(self.deadline).min(self.holders.until().max(now))
    }

    /// Hands the claim to the waiter that `take` removes from its batch, if the claim is fit for these terms (R6). If
    /// not, keeps it for that waiter until a renewal is confirmed, where that helps.
    ///
    /// `fresh` is the time to live that the store has just confirmed, if it has.
    #[inline]
    pub(super) fn offer<X: Shell<K>>(
        &mut self,
        term: &Term,
        now: Moment,
        fresh: Option<Duration>,
        shell: &mut X,
        take: impl FnOnce() -> Option<Recipient<K>>,
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
        let Some(recipient) = take() else { return HandedOn::None };
        let mut holder = LocalHolder::new(recipient, fencing_token, self.deadline, now);
        holder.offer(now);
        shell.grant(&holder.caller, holder.grant(self.deadline), now);
        self.holders.add(holder);
        HandedOn::Yes
    }

    /// Returns whether no caller holds the lock by this claim, or gets it after a renewal.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.is_held() && self.awaited.is_none()
    }

    /// Tells all holders their deadlines.
    pub(super) fn tell_deadlines<X: Shell<K>>(&self, shell: &mut X) {
        for holder in self.holders.iter() {
            shell.extended(&holder.caller, holder.deadline(self.deadline));
        }
    }

    /// Returns the claim's token as one to be released.
    #[inline]
    pub(super) fn release(&self, keep: Option<Duration>) -> Freeing<K> {
        Freeing { token: self.token.clone(), keep, deadline: self.deadline }
    }

    /// Returns the next action that is due. The batch is `crowded` if callers wait behind the holder.
    pub(super) fn due_action(&mut self, crowded: bool, now: Moment) -> DueAction {
        if !self.is_held() && now >= self.deadline {
            return DueAction::GiveUp;
        }
        let end = self.deadline;
        if let Some(holder) = self.holders.due(end, now) {
            return match holder.phase {
                _ if now >= holder.deadline(end) => DueAction::Expire(holder.at),
                Phase::Offered { .. } => DueAction::PassOver(holder.at),
                Phase::Part { .. } => DueAction::Abandon(holder.at),
                Phase::InUse => DueAction::Nothing,
            };
        }
        if self.renewal_at(crowded) > now {
            return DueAction::Nothing;
        }
        match self.renewal(now) {
            Some(ttl) => DueAction::Renew(ttl),
            // This renewal draws counter values, and extends nothing because no lease is shortened.
            None if self.needs_fence() => DueAction::Renew(SHORTEST_TTL),
            // The holder that wanted the renewal is done.
            None => {
                self.holders.refresh();
                DueAction::Nothing
            }
        }
    }

    /// Sends a renewal to this time to live (R10), which draws counter values if fencing tokens run short (R5).
    pub(super) fn renew<X: Shell<K>>(&mut self, ttl: Duration, shell: &mut X) {
        let draw = self.draws();
        self.renewal = RenewalState::Sent { draw };
        let Self { token, last_fence: fence, deadline, .. } = self;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        shell.renew(Renew { token, ttl, draw, fence, deadline });
    }

    /// Replaces the token by the reader's token, which others may share. Returns the grant of the holder with this
    /// number.
    pub(super) fn downgrade(
        &mut self,
        at: i64,
        exchange: &Downgrade<K>,
        (fence, sent): (u64, Moment),
        needs_renewal: bool,
    ) -> Option<Grant> {
        self.token = exchange.new.clone();
        self.limit = Limit::READ;
        self.exchange = None;
        (self.fence, self.ticket) = (self.fence.max(fence), fence);
        self.last_fence = self.last_fence.max(fence);
        // The old token's lease is gone, even if it would have lasted longer.
        self.deadline = deadline_of(sent, &exchange.term, needs_renewal);
        (self.confirmed, self.term) = (sent, exchange.term);
        self.renewal = RenewalState::Idle;
        let fencing_token = self.issue()?;
        let end = self.deadline;
        self.holders.change(at, |holder| {
            holder.request.limit = Limit::READ;
            holder.fencing_token = fencing_token;
            holder.grant(end)
        })
    }
}

/// The claims by which one batch owns the lock: at least one, and several only for permits.
///
/// Nearly every batch has one, which needs no list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claims<K: Kinds> {
    /// The oldest claim.
    pub(super) first: Claim<K>,
    rest: Vec<Claim<K>>,
}

impl<K: Kinds> Claims<K> {
    /// Creates the claims of a batch that owns the lock by one token.
    pub(super) fn one(claim: Claim<K>) -> Self {
        Self { first: claim, rest: Vec::new() }
    }

    /// Returns all claims, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Claim<K>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns all claims, the oldest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Claim<K>> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    /// Returns the first claim for which `is` holds.
    #[inline]
    pub(super) fn find_mut(&mut self, is: impl Fn(&Claim<K>) -> bool) -> Option<&mut Claim<K>> {
        if is(&self.first) {
            return Some(&mut self.first);
        }
        self.rest.iter_mut().find(|claim| is(claim))
    }

    /// Returns when something is due for one of the claims.
    #[inline]
    pub(super) fn due(&self, crowded: bool) -> Moment {
        let first = self.first.due(crowded);
        self.rest.iter().map(|claim| claim.due(crowded)).fold(first, Moment::min)
    }

    /// Returns the number of claims.
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Returns the oldest claim.
    pub fn first(&self) -> &Claim<K> {
        &self.first
    }

    /// Returns the claim at an index.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Claim<K>> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.rest.get_mut(index),
        }
    }

    /// Returns the index of the first claim for which `is` holds.
    #[inline]
    pub(super) fn index_of(&self, is: impl Fn(&Claim<K>) -> bool) -> Option<usize> {
        self.iter().position(is)
    }

    /// Adds a claim.
    pub(super) fn push(&mut self, claim: Claim<K>) {
        self.rest.push(claim);
    }

    /// Removes the claim at an index. The last one of a batch is not removed: returns `None`.
    pub(super) fn take(&mut self, index: usize) -> Option<Claim<K>> {
        if self.rest.is_empty() {
            return None;
        }
        match index.checked_sub(1) {
            None => Some(std::mem::replace(&mut self.first, self.rest.remove(0))),
            Some(index) => (index < self.rest.len()).then(|| self.rest.remove(index)),
        }
    }

    /// Returns all claims by value.
    pub(super) fn into_all(self) -> impl Iterator<Item = Claim<K>> {
        std::iter::once(self.first).chain(self.rest)
    }
}
