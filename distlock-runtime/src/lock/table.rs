//! Which locks this process holds or waits for, and how they pass from one caller to the next.
//!
//! A caller that finds no line for its lock makes one and tries by itself; one that finds a line
//! joins it. Who is done hands the lease to the next in line, in his own task and without asking
//! the store. Mutexes are never held across an await, and nobody is woken under one.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::alleged::Alleged;
use super::batch::{Batch, Line, PATIENCE, Queued, Stage, TakenOut};
use super::claim::{Claim, Fit, deadline};
use super::lapsed::Lapsed;
use super::lease::{Lease, Loss};
use super::release::Repairs;
use super::usher::LOOK_UNTOLD;
use super::waiter::{Denied, Place, Waiter, Wish, Woken};
use crate::clock::{Clock, Moment};
use crate::engine::Background;
use crate::engine::janitor::Janitor;
use crate::engine::schedule::Schedule;
use crate::error::{BackendKind, LockName};
use crate::home::Home;
use crate::namespace::{BuildStoredHasher, StoredName};
use crate::shrink::shrink;
use crate::store::{Answer, Fault, Store, Term};
use crate::token::Owner;

const SHARDS: usize = 64;

/// All lines of one manager.
pub(crate) struct LockTable {
    shards: [Mutex<Lines>; SHARDS],
    home: Home,
    pub(super) store: Arc<dyn Store>,
    pub(super) background: Background,
    pub(super) owner: Owner,
    /// How long an answer is waited for.
    pub(super) patience: Duration,
    pub(super) repairs: Repairs,
    pub(crate) janitor: Janitor,
    /// Whose turn it is of those that renew very many leases.
    pub(crate) many_renewals: tokio::sync::Mutex<()>,
    pub(crate) lapsed: Lapsed,
    pub(super) alleged: Alleged,
    schedule: Arc<Schedule>,
    clock: Clock,
    remote: bool,
    closed: AtomicBool,
    batches: AtomicU64,
    /// Of batches that the engine took over while their leader was still trying, by number.
    leaders: Mutex<HashMap<u64, Arc<Waiter>>>,
}

type Lines = HashMap<Name, Line, BuildStoredHasher>;

/// A lock by the name under which it is stored.
pub(super) struct Name(Arc<LockName>);

impl Borrow<StoredName> for Name {
    fn borrow(&self) -> &StoredName {
        self.0.stored()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.stored().hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.stored() == other.0.stored()
    }
}

impl Eq for Name {}

/// What a caller finds who wants a lock.
pub(crate) enum Arrival {
    /// Nobody here has or wants it: try.
    Lead(Lead),
    /// Others are before him.
    Wait(Place),
    /// Others are before him, but he does not want to wait: try without a place in the line.
    Alone(Arc<Claim>),
    /// Somebody here has it, and he does not want to wait.
    Busy(Option<Duration>),
}

/// What came of a try.
pub(crate) enum Settled {
    Held(Arc<Lease>),
    Wait(Place),
    Denied(Denied),
}

/// What came of an attempt to hand a lease on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandedOn {
    Yes,
    /// It is renewed first.
    AfterRenewal,
    /// The next holder cannot have this lease, but must keep his place.
    Unfit,
    Nobody,
}

/// What is to be done once no mutex is held.
#[derive(Default)]
pub(super) struct Effects {
    woken: Vec<Woken>,
    /// Claims that left the queue.
    leaving: Vec<Arc<Claim>>,
    /// There is a batch to see to.
    attend: bool,
}

impl Effects {
    pub(super) fn wake(&mut self, woken: Option<Woken>) {
        self.woken.extend(woken);
    }

    pub(super) fn leave(&mut self, claim: Arc<Claim>) {
        claim.retire();
        self.leaving.push(claim);
    }

    pub(super) fn attend(&mut self) {
        self.attend = true;
    }

    pub(super) fn carry_out(self, table: &Arc<LockTable>, lock: &Arc<LockName>) {
        self.woken.into_iter().for_each(Woken::wake);
        for claim in self.leaving {
            table.leave_queue(claim);
        }
        if self.attend {
            table.call_usher(lock);
        }
    }
}

impl LockTable {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        schedule: Arc<Schedule>,
        background: Background,
        patience: Duration,
    ) -> Arc<Self> {
        let (clock, remote) = (store.clock(), store.is_remote());
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            home: Home::here(),
            store,
            background,
            owner: Owner::new(),
            patience,
            repairs: Repairs::default(),
            janitor: Janitor::default(),
            many_renewals: tokio::sync::Mutex::default(),
            lapsed: Lapsed::default(),
            alleged: Alleged::default(),
            schedule,
            clock,
            remote,
            closed: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            leaders: Mutex::default(),
        })
    }

    pub(crate) fn home(&self) -> Home {
        self.home
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What this manager's tokens begin with.
    pub(crate) fn process(&self) -> &str {
        self.owner.process()
    }

    /// Leases must be renewed and are watched by the engine.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Somebody here waits for the lock.
    pub(crate) fn has_waiters(&self, lock: &StoredName) -> bool {
        let mut lines = self.lines(lock);
        lines.get_mut(lock).is_some_and(|line| line.batches().any(|batch| batch.is_crowded()))
    }

    /// How many calls wait here.
    pub(crate) fn waiting(&self) -> usize {
        let in_shard = |lines: &mut Lines| lines.values_mut().map(Line::waiting).sum::<usize>();
        self.shards.iter().map(|shard| in_shard(&mut lock(shard))).sum()
    }

    /// Gives no more locks: whoever waits learns that.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        let mut effects = Vec::new();
        for shard in &self.shards {
            let mut lines = lock(shard);
            let mut queued = Vec::new();
            for (name, line) in lines.iter_mut() {
                let mut own = Effects::default();
                for batch in line.batches() {
                    for waiter in batch.waiters() {
                        own.wake(waiter.deny(Denied::Fault(Fault::closed())));
                    }
                    // One that is being renewed for the next holder has none to be freed by.
                    if !batch.is_owned() || batch.claim.holder().is_none() {
                        queued.push((effects.len(), batch.number));
                    }
                }
                effects.push((name.0.clone(), own));
            }
            // Out of the store's queue now, and counted as unfinished until it has said so.
            for (at, number) in queued {
                let (name, own) = &mut effects[at];
                self.dissolve(&mut lines, name.stored(), number, own);
            }
        }
        for (lock, own) in effects {
            own.carry_out(self, &lock);
        }
    }

    /// A claim that was never sent. Its owner is given `patience` to take what is reserved for it.
    pub(super) fn claim(&self, lock: &Arc<LockName>, patience: Duration) -> Arc<Claim> {
        self.claim_at(lock, patience, self.clock.now())
    }

    /// The same at a moment that was read already: reading it again costs 1 % of a lock.
    fn claim_at(&self, lock: &Arc<LockName>, patience: Duration, now: Moment) -> Arc<Claim> {
        let hears = self.store.hears(lock);
        let patience = patience_of(hears, patience);
        Arc::new(Claim::new(lock.clone(), self.owner.issue(hears, patience, now)))
    }

    /// Until when a lease is worth something here that was asked for at `sent`.
    pub(super) fn deadline(&self, sent: Moment, term: Term) -> Moment {
        // In memory a renewed lease has no end: nothing could keep a renewal from being in time.
        let endless = term.renewed && !self.remote;
        if endless { Moment::NEVER } else { deadline(sent, term.lease()) }
    }

    pub(super) fn number(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lines(&self, stored: &StoredName) -> MutexGuard<'_, Lines> {
        lock(&self.shards[stored.part(SHARDS)])
    }

    /// Somebody wants the lock. He waits for it if not so many here do already.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        wish: Wish,
        line_ends: usize,
    ) -> Arrival {
        let mut effects = Effects::default();
        let arrival = {
            let mut lines = self.lines(lock.stored());
            let Some(line) = lines.get_mut(lock.stored()) else {
                let claim = self.claim_at(lock, PATIENCE, wish.asked);
                let number = self.number();
                let batch = Batch::new(number, claim.clone(), Stage::Leading(wish));
                lines.insert(Name(lock.clone()), Line::new(batch));
                let table = self.clone();
                return Arrival::Lead(Lead { table, claim, number, open: true });
            };
            if line_ends == 0 {
                self.pass_by(line, lock)
            } else if line_ends < usize::MAX && line.waiting() >= line_ends {
                Arrival::Busy(self.rest(line))
            } else {
                let waiter = self.join(line, lock, wish, &mut effects);
                Arrival::Wait(Place::new(self.clone(), lock.clone(), waiter))
            }
        };
        effects.carry_out(self, lock);
        arrival
    }

    fn join(
        &self,
        line: &mut Line,
        lock: &Arc<LockName>,
        wish: Wish,
        effects: &mut Effects,
    ) -> Arc<Waiter> {
        let now = self.clock.now();
        if !line.last().admits(now) {
            let queued = Stage::Queued(Queued::new(None));
            line.push(Batch::new(self.number(), self.claim(lock, PATIENCE), queued));
            effects.attend();
        }
        let last = line.last();
        self.take_over(last, effects);
        let waiter = Waiter::new(wish, last.number);
        last.push_back(waiter.clone());
        if let Stage::Owned = last.stage
            && !last.claim.is_crowded()
        {
            // So that the lease is young when it is handed on.
            last.claim.set_crowded(true);
            if let Some(holder) = last.claim.holder() {
                last.claim.hasten(holder.tend_at(), &self.schedule);
            }
        }
        waiter
    }

    /// More than one depends on a batch's try, so the engine sees to it from now on: the leader's
    /// future may not be polled any more.
    fn take_over(&self, batch: &mut Batch, effects: &mut Effects) {
        let Stage::Leading(leaders) = batch.stage else { return };
        let leader = Waiter::new(leaders, batch.number);
        batch.push_back(leader.clone());
        self.leaders().insert(batch.number, leader);
        batch.stage = Stage::Queued(Queued::new(None));
        effects.attend();
    }

    /// What somebody finds who does not wait.
    fn pass_by(&self, line: &mut Line, lock: &Arc<LockName>) -> Arrival {
        match self.rest(line) {
            Some(rest) => Arrival::Busy(Some(rest)),
            None if self.remote => Arrival::Alone(self.claim(lock, PATIENCE)),
            None => Arrival::Busy(None),
        }
    }

    /// How much is left of the lease that somebody here has.
    fn rest(&self, line: &mut Line) -> Option<Duration> {
        let now = self.clock.now();
        let mut owned = line.batches().filter(|batch| batch.is_owned());
        owned.find_map(|batch| {
            let rest = match batch.claim.holder() {
                Some(holder) => holder.remaining(),
                None => batch.claim.deadline().since(now),
            };
            (!rest.is_zero()).then_some(rest)
        })
    }

    /// A holder is done, and his body gone; `was_held` until now. With `keep` the lock is not to be
    /// free yet. True if the lease went on to somebody else; otherwise its claim is to be released,
    /// now and for good. It is not either if the engine does so, behind the acquire of those who
    /// waited when it was lost.
    pub(crate) fn end(self: &Arc<Self>, lease: &Lease, was_held: bool, keep: bool) -> bool {
        let claim = &lease.claim;
        let lock = &claim.lock;
        if let (true, Some(end)) = (keep, lease.free_from) {
            // Before it is retired: see `Lead::undo`.
            claim.keep_until(end);
        }
        let mut effects = Effects::default();
        let handed_on = {
            let mut lines = self.lines(lock.stored());
            let batch = of_claim(&mut lines, claim);
            let number = batch.as_ref().map(|batch| batch.number);
            let handed_on = match batch.filter(|batch| batch.is_crowded()) {
                // Nobody waits, or it was lost before, or taken without a line.
                None => HandedOn::Nobody,
                Some(batch) if was_held && !keep && self.remote => {
                    let now = self.clock.now();
                    let handed_on = self.hand_on(batch, now, None, &mut effects);
                    if handed_on == HandedOn::Unfit {
                        self.reenter(batch, Some(claim.clone()));
                        effects.attend();
                    }
                    handed_on
                }
                Some(batch) => {
                    let waits = batch.next(self.clock.now()).is_some();
                    if waits {
                        self.reenter(batch, None);
                        batch.came_from(claim);
                    }
                    // A store in this process is asked once it has the lock back.
                    if waits && self.remote {
                        effects.attend();
                    }
                    if waits { HandedOn::Unfit } else { HandedOn::Nobody }
                }
            };
            if let (HandedOn::Nobody, Some(number)) = (handed_on, number) {
                take_out(&mut lines, lock.stored(), number);
            }
            match was_held {
                true => !keep && self.remote && handed_on != HandedOn::Nobody,
                false => !keep && self.release_behind(&mut lines, claim, &mut effects),
            }
        };
        if !handed_on {
            claim.retire();
            claim.untend(&self.schedule);
        }
        effects.carry_out(self, lock);
        lease.tell_end();
        handed_on
    }

    /// The other way round the lock would go past those who ask for it again from their old place.
    /// False if there are none.
    fn release_behind(&self, lines: &mut Lines, claim: &Arc<Claim>, effects: &mut Effects) -> bool {
        // A store in this process is asked once it has the lock back.
        if !self.remote {
            return false;
        }
        let Some(line) = lines.get_mut(claim.lock.stored()) else { return false };
        for batch in line.batches() {
            let Stage::Queued(queued) = &mut batch.stage else { continue };
            if queued.lost.take_if(|lost| Arc::ptr_eq(lost, claim)).is_none() {
                continue;
            }
            if batch.claim.is_unsent() && !queued.asking {
                queued.instead_of = Some(claim.clone());
            } else {
                effects.leave(claim.clone());
            }
            return true;
        }
        false
    }

    /// Gives back a claim that was lost while nobody used it.
    pub(crate) fn give_back_lost(self: &Arc<Self>, claim: &Arc<Claim>) {
        let mut effects = Effects::default();
        let behind = {
            let mut lines = self.lines(claim.lock.stored());
            self.release_behind(&mut lines, claim, &mut effects)
        };
        effects.carry_out(self, &claim.lock);
        if !behind {
            self.give_back(claim.clone(), None);
        }
    }

    /// Ends a lease and sees to what becomes of its claim in the background.
    pub(crate) fn let_go(self: &Arc<Self>, lease: &Arc<Lease>) {
        let was_held = lease.finish();
        let keep = lease.keep();
        if !self.end(lease, was_held, keep.is_some()) {
            self.give_back(lease.claim.clone(), keep);
        }
    }

    /// Somebody of another process stands behind this claim.
    pub(crate) fn seal(&self, claim: &Arc<Claim>) {
        let now = self.clock.now();
        if let Some(batch) = of_claim(&mut self.lines(claim.lock.stored()), claim) {
            batch.seal(now);
        }
    }

    /// The store says that the lock is not the claim's any more.
    pub(crate) fn taken_away(self: &Arc<Self>, claim: &Arc<Claim>, loss: Loss) {
        match claim.holder() {
            Some(lease) => drop(lease.lose(loss)),
            None => self.orphaned(claim),
        }
    }

    /// A lease was lost: whoever waits behind it asks the store again, from the same place.
    pub(crate) fn orphaned(self: &Arc<Self>, claim: &Arc<Claim>) {
        let lock = &claim.lock;
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            let now = self.clock.now();
            if let Some(batch) = of_claim(&mut lines, claim) {
                if batch.next(now).is_some() && !self.is_closed() {
                    self.reenter(batch, None);
                    batch.came_from(claim);
                    effects.attend();
                } else {
                    let number = batch.number;
                    take_out(&mut lines, lock.stored(), number);
                }
            }
        }
        claim.untend(&self.schedule);
        effects.carry_out(self, lock);
    }

    /// The lease was renewed to `ttl` for somebody who waits for just that.
    pub(crate) fn resume(self: &Arc<Self>, claim: &Arc<Claim>, ttl: Duration) {
        let lock = &claim.lock;
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            if claim.wanted().is_some() {
                self.grant(&mut lines, claim, ttl, &mut effects);
            }
        }
        effects.carry_out(self, lock);
    }

    /// Gives a claim that owns the lock to the first of its batch. The store has just confirmed it
    /// for `ttl`.
    pub(super) fn grant(
        self: &Arc<Self>,
        lines: &mut Lines,
        claim: &Arc<Claim>,
        ttl: Duration,
        effects: &mut Effects,
    ) {
        let stored = claim.lock.stored();
        let now = self.clock.now();
        let Some(batch) = of_claim(lines, claim) else { return };
        match self.hand_on(batch, now, Some(ttl), effects) {
            HandedOn::Yes | HandedOn::AfterRenewal => {}
            HandedOn::Unfit => {
                self.reenter(batch, Some(claim.clone()));
                effects.attend();
            }
            HandedOn::Nobody => {
                let number = batch.number;
                take_out(lines, stored, number);
                claim.untend(&self.schedule);
                effects.leave(claim.clone());
            }
        }
    }

    /// Hands the lease of an owned batch to the next of its waiters. It is `fresh` if the store has
    /// just confirmed it, for so long: what is left of that is enough for who wanted no more,
    /// however long the answer was on its way.
    fn hand_on(
        self: &Arc<Self>,
        batch: &mut Batch,
        now: Moment,
        fresh: Option<Duration>,
        effects: &mut Effects,
    ) -> HandedOn {
        while let Some(waiter) = batch.next(now).cloned() {
            let (claim, wish) = (&batch.claim, waiter.wish);
            let fit = if self.remote { claim.fit(&wish.term, now) } else { Fit::AsItIs };
            let fits = match fit {
                Fit::AsItIs => true,
                Fit::AfterRenewal => {
                    let enough = fresh.is_some_and(|ttl| ttl >= wish.term.stored_for());
                    enough && now < claim.deadline()
                }
                Fit::TooLong => return HandedOn::Unfit,
            };
            let fencing_token = if fits { claim.issue() } else { None };
            let Some(fencing_token) = fencing_token else {
                claim.wanted_for(wish.term.stored_for(), &self.schedule);
                return HandedOn::AfterRenewal;
            };
            let own = Arc::downgrade(&waiter);
            let start = || Lease::start(self, claim, fencing_token, &wish, now, own);
            if let Some(woken) = waiter.grant(start) {
                batch.served();
                batch.claim.set_crowded(batch.is_crowded());
                if batch.claim.needs_fence() {
                    batch.claim.hasten(now, &self.schedule);
                }
                effects.wake(Some(woken));
                if !self.remote {
                    // The lease that they wait behind may end at another time now.
                    self.nudge_next(batch, effects);
                }
                return HandedOn::Yes;
            }
        }
        HandedOn::Nobody
    }

    /// The batch asks for the lock again under a new claim, from its old place. With `instead_of`
    /// its old claim is released right after it stands there.
    pub(super) fn reenter(&self, batch: &mut Batch, instead_of: Option<Arc<Claim>>) {
        if let Some(old) = &instead_of {
            old.retire();
            old.untend(&self.schedule);
        }
        let claim = self.claim(&batch.claim.lock, PATIENCE);
        let old = std::mem::replace(&mut batch.claim, claim);
        if batch.ticket == 0 {
            batch.ticket = old.ticket();
        }
        // Somebody here has had the lock until now.
        let queued = Queued { taken_until: Some(None), ..*Queued::new(instead_of) };
        batch.stage = Stage::Queued(Box::new(queued));
    }

    /// Somebody left the line before he was granted anything.
    pub(super) fn left(self: &Arc<Self>, lock: &Arc<LockName>, waiter: &Waiter) {
        let number = waiter.batch.load(Ordering::Acquire);
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            let Some(batch) = numbered(&mut lines, lock.stored(), number) else { return };
            let nobody_is_left = batch.left();
            if !self.remote {
                self.nudge_next(batch, &mut effects);
            }
            if nobody_is_left {
                match &mut batch.stage {
                    Stage::Queued(_) => {
                        self.dissolve(&mut lines, lock.stored(), number, &mut effects)
                    }
                    Stage::Owned => batch.claim.set_crowded(false),
                    Stage::Leading(_) => {}
                }
            }
        }
        effects.carry_out(self, lock);
    }

    /// Takes a batch out that does not own the lock, and its claim out of the store's queue.
    pub(super) fn dissolve(
        &self,
        lines: &mut Lines,
        stored: &StoredName,
        number: u64,
        effects: &mut Effects,
    ) {
        let Some(batch) = take_out(lines, stored, number) else { return };
        if let Stage::Queued(queued) = batch.stage {
            if let Some(slot) = queued.slot {
                self.schedule.remove(slot);
            }
            if let Some(old) = queued.instead_of {
                effects.leave(old);
            }
        }
        effects.leave(batch.claim);
    }

    /// Somebody who did not take his grant in time asks for it again.
    pub(super) fn rejoin(self: &Arc<Self>, lock: &Arc<LockName>, waiter: &Arc<Waiter>) {
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            if self.is_closed() {
                drop(waiter.deny(Denied::Fault(Fault::closed())));
                return;
            }
            let line = lines.entry(Name(lock.clone())).or_insert_with(|| {
                effects.attend();
                // It went on to others.
                let queued = Queued { taken_until: Some(None), ..*Queued::new(None) };
                let queued = Stage::Queued(Box::new(queued));
                Line::new(Batch::new(self.number(), self.claim(lock, PATIENCE), queued))
            });
            let first = line.first();
            self.take_over(first, &mut effects);
            waiter.batch.store(first.number, Ordering::Release);
            first.push_front(waiter.clone());
            first.claim.set_crowded(true);
        }
        effects.carry_out(self, lock);
    }

    /// Ends a lease that its holder has not given back in time, or never came for; false if there is
    /// none of that.
    pub(crate) fn ended(self: &Arc<Self>, lease: &Arc<Lease>, now: Moment) -> bool {
        if now >= lease.deadline() {
            lease.lose(Loss::Expired);
        } else if lease.is_abandoned() {
            // Not if he was done in this very moment: then it is somebody else's by now.
            if lease.lose(Loss::Abandoned) {
                self.give_back_lost(&lease.claim);
            }
        } else if lease.is_left_lying() {
            self.pass_over(lease);
        } else {
            return false;
        }
        true
    }

    /// A lease lies with somebody who does not take it: the next one gets it.
    fn pass_over(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.waiter.upgrade().is_some_and(|waiter| waiter.pass_over(lease)) {
            self.let_go(lease);
        }
    }

    /// Why somebody whose wait is over did not get the lock; `None` if nobody has said yet that it is
    /// taken. Who was told more when his batch went has heard it; else the others had their turn.
    pub(super) fn verdict(&self, lock: &LockName, waiter: &Waiter) -> Option<Denied> {
        let now = self.clock.now();
        let mut lines = self.lines(lock.stored());
        let number = waiter.batch.load(Ordering::Acquire);
        match numbered(&mut lines, lock.stored(), number) {
            Some(batch) => batch.verdict(now),
            None => Some(Denied::Taken(None)),
        }
    }

    /// Every lock for which somebody here stands in the store's queue; each is to be looked at.
    pub(super) fn queued_locks(&self) -> Vec<Arc<LockName>> {
        let mut queued_locks = Vec::new();
        for shard in &self.shards {
            for (name, line) in lock(shard).iter_mut() {
                let mut any = false;
                for batch in line.batches() {
                    if let Stage::Queued(queued) = &mut batch.stage {
                        (queued.hint, any) = (true, true);
                    }
                }
                if any {
                    queued_locks.push(name.0.clone());
                }
            }
        }
        queued_locks
    }

    pub(super) fn leaders(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        lock(&self.leaders)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who looks by himself needs to have looked in the time that a lock is kept for him.
pub(super) fn patience_of(hears: bool, patience: Duration) -> Duration {
    if hears { patience } else { patience.max(LOOK_UNTOLD * 3) }
}

/// The batch that stands under a claim.
pub(super) fn of_claim<'a>(lines: &'a mut Lines, claim: &Arc<Claim>) -> Option<&'a mut Batch> {
    lines.get_mut(claim.lock.stored())?.of_claim(claim)
}

/// The batch that stands under a token.
pub(super) fn of_token<'a>(
    lines: &'a mut Lines,
    stored: &StoredName,
    token: &str,
) -> Option<&'a mut Batch> {
    lines.get_mut(stored)?.of_token(token)
}

/// The batch of a number.
pub(super) fn numbered<'a>(
    lines: &'a mut Lines,
    stored: &StoredName,
    number: u64,
) -> Option<&'a mut Batch> {
    lines.get_mut(stored)?.numbered(number)
}

/// Takes a batch out of its line, and the line out if it was the last.
pub(super) fn take_out(lines: &mut Lines, stored: &StoredName, number: u64) -> Option<Batch> {
    match lines.get_mut(stored)?.take_out(number) {
        TakenOut::None => None,
        TakenOut::One(batch) => Some(batch),
        TakenOut::Last => {
            let line = lines.remove(stored).map(Line::into_first);
            shrink(lines);
            line
        }
    }
}

/// A try of somebody who found no line. Dropped before it is settled, it gives back what it may
/// have taken.
pub(crate) struct Lead {
    table: Arc<LockTable>,
    pub(crate) claim: Arc<Claim>,
    number: u64,
    /// The claim may own the lock, and nobody else sees to it.
    open: bool,
}

impl Lead {
    /// The store has answered, or has not.
    pub(crate) fn settle(
        mut self,
        answer: Result<Answer, Fault>,
        wish: &Wish,
        patient: bool,
    ) -> Settled {
        let table = self.table.clone();
        let lock = self.claim.lock.clone();
        let mut effects = Effects::default();
        let own = {
            let mut lines = table.lines(lock.stored());
            let batch = numbered(&mut lines, lock.stored(), self.number);
            match batch.filter(|batch| matches!(batch.stage, Stage::Leading(_))) {
                Some(batch) => {
                    let settled = self.settle_own(batch, answer, wish, patient, &mut effects);
                    if let Settled::Denied(_) = settled {
                        take_out(&mut lines, lock.stored(), self.number);
                    }
                    Ok(settled)
                }
                None => Err(answer),
            }
        };
        let settled = own.unwrap_or_else(|answer| self.settle_taken_over(answer, patient));
        effects.carry_out(&table, &lock);
        self.undo();
        settled
    }

    fn settle_own(
        &mut self,
        batch: &mut Batch,
        answer: Result<Answer, Fault>,
        wish: &Wish,
        patient: bool,
        effects: &mut Effects,
    ) -> Settled {
        let table = &self.table;
        let queued = match answer {
            Ok(Answer::Granted { fence, sent }) => {
                return match start(table, &self.claim, fence, sent, wish) {
                    Ok(lease) => {
                        batch.stage = Stage::Owned;
                        self.open = false;
                        Settled::Held(lease)
                    }
                    Err(fault) => Settled::Denied(Denied::Fault(fault)),
                };
            }
            Ok(Answer::Taken { rest }) if patient => {
                let mut queued = Queued::new(None);
                queued.taken_until = Some(rest.map(|rest| table.clock.now().after(rest)));
                queued
            }
            Ok(Answer::Taken { rest }) => {
                // A clear no: there is nothing to give back.
                self.open = false;
                return Settled::Denied(Denied::Taken(rest));
            }
            Err(fault) if patient && fault.passing => {
                let mut queued = Queued::new(None);
                // That it had no time for an answer says nothing of the store.
                if !wish.hurried || fault.kind != BackendKind::TimedOut {
                    queued.failed(fault, table.clock.now());
                }
                queued
            }
            Err(fault) => return Settled::Denied(Denied::Fault(fault)),
        };
        self.open = false;
        batch.stage = Stage::Queued(queued);
        let waiter = Waiter::new(*wish, self.number);
        batch.push_back(waiter.clone());
        effects.attend();
        Settled::Wait(Place::new(table.clone(), self.claim.lock.clone(), waiter))
    }

    /// The engine has taken the try over, because others depend on it: it sends the same token
    /// again, and its answer counts.
    fn settle_taken_over(&mut self, answer: Result<Answer, Fault>, patient: bool) -> Settled {
        let place = self.place();
        match (place, answer) {
            (Some(place), Ok(Answer::Granted { .. })) => Settled::Wait(place),
            (Some(place), _) if patient => Settled::Wait(place),
            (_, Ok(Answer::Taken { rest })) => Settled::Denied(Denied::Taken(rest)),
            // Nobody but who closes takes a batch out whose try is under way.
            (_, Ok(Answer::Granted { .. })) => Settled::Denied(Denied::Fault(Fault::closed())),
            (_, Err(fault)) => Settled::Denied(Denied::Fault(fault)),
        }
    }

    /// The engine may have released the claim before the try was sent: then it has to be again. Or
    /// the claim has had its time, and its last holder is done: then this must not free what he
    /// keeps, and he must not take his lock for lost because this release came before his.
    fn undo(&mut self) {
        if self.claim.is_retired() && !self.claim.is_unsent() {
            self.claim.undo();
            let keep = self.claim.kept(self.table.clock.now());
            self.table.give_back(self.claim.clone(), keep);
        }
    }

    /// Its place in the line once the engine has taken over.
    fn place(&mut self) -> Option<Place> {
        let mut leaders = self.table.leaders();
        let waiter = leaders.remove(&self.number)?;
        shrink(&mut leaders);
        drop(leaders);
        self.open = false;
        Some(Place::new(self.table.clone(), self.claim.lock.clone(), waiter))
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.open || !self.table.home.is_here() {
            return;
        }
        {
            let mut lines = self.table.lines(self.claim.lock.stored());
            let stored = self.claim.lock.stored();
            let batch = numbered(&mut lines, stored, self.number);
            if batch.is_some_and(|batch| matches!(batch.stage, Stage::Leading(_))) {
                take_out(&mut lines, stored, self.number);
            }
        }
        if self.place().is_none() {
            self.table.give_back(self.claim.clone(), None);
        } else {
            self.undo();
        }
    }
}

/// The lease of a claim that was granted to whoever asked, or why it is of no use.
pub(crate) fn start(
    table: &Arc<LockTable>,
    claim: &Arc<Claim>,
    fence: u64,
    sent: Moment,
    wish: &Wish,
) -> Result<Arc<Lease>, Fault> {
    claim.granted(fence, sent, table.deadline(sent, wish.term_at(table.remote)));
    if table.clock.now() >= claim.deadline() {
        let text = "its answer took longer than the lock's ttl";
        return Err(Fault::passing(BackendKind::TimedOut, text));
    }
    let Some(fencing_token) = claim.issue() else {
        return Err(Fault::lasting(BackendKind::Other, "no fencing token is left"));
    };
    let lease = Lease::start(table, claim, fencing_token, wish, sent, Weak::new());
    // Whoever closes looks for leases behind this: one of the two sees the other.
    if table.is_closed() {
        claim.untend(&table.schedule);
        return Err(Fault::closed());
    }
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::LockManager;

    /// How many lines there is room for.
    fn room(table: &LockTable) -> usize {
        table.shards.iter().map(|shard| lock(shard).capacity()).sum()
    }

    #[tokio::test]
    async fn r24_very_many_locks_leave_no_memory_behind() {
        const LOCKS: usize = 20_000;
        let manager = LockManager::in_memory();
        let table = manager.inner().engine.table.clone();
        let hold = async |from: usize| {
            let mut guards = Vec::new();
            for n in from..from + LOCKS {
                guards.push(manager.lock(n.to_string()).acquire().await.expect("free"));
            }
            guards
        };
        for _ in 0..2 {
            let some = hold(0).await;
            let others = hold(LOCKS).await;
            assert!(room(&table) >= 2 * LOCKS);
            drop(some);
            assert!(room(&table) >= LOCKS, "those that are held are there");
            drop(others);
            // A line's map keeps room for some locks, or it would be made again all the time.
            assert!(room(&table) <= SHARDS * 128, "room for {} is left", room(&table));
        }
    }
}
