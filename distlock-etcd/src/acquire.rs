//! The commands that may grant a lock: a try, and an entry into the queue.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::store::{Answer, Attempt, Entered, Entry, Owner};

use crate::client::{EtcdClient, GrantNotes, remaining, txn, txn_with_lease};
use crate::connection::EtcdConnection;
use crate::fault::EtcdFault;
use crate::fence::FenceBase;
use crate::keys::LockPrefix;
use crate::lease::{EtcdLease, whole_seconds};
use crate::proto::{Compare, RequestOp, ResponseHeader, TxnRequest, TxnResponse};
use crate::queue::{
    Blocker, QueueEntry, QueuePosition, blocker, holder_count, queue_of, read_queue,
};
use crate::waiters::QueuedToken;

/// The most attempts while the base of the fencing tokens, a lease or the queue changes.
const MOST_ATTEMPTS: usize = 8;
/// The longest lease of a waiter, in seconds. A waiter that died blocks the others for as long. Once it holds the lock,
/// a waiter has the lease that was asked for.
const LONGEST_WAITER_LEASE: u64 = 10;
/// The most holders whose keys a transaction checks. etcd accepts at most 128 conditions.
const MOST_CHECKED: usize = 100;
/// A lock that is held for less than this needs no watches.
const SHORT_HOLD: Duration = Duration::from_millis(20);

/// One call, with the arguments of all its steps.
struct AcquireCall<'a> {
    client: &'a EtcdClient,
    connection: &'a EtcdConnection,
    owner: &'a Arc<Owner>,
    /// The time to live in seconds.
    ttl: u64,
    mode: AcquireMode,
    prefix: LockPrefix,
    /// The key of the base of the lock's fencing tokens.
    fence: &'a [u8],
    notes: GrantNotes<'a>,
}

/// The reaction of a call to a lock that is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcquireMode {
    /// Leave nothing. With `look`, ask how long the holder's lease still runs.
    Try { look: bool },
    /// Let the token wait, at the place that it had before, or with ticket 0 at the end.
    Enter { ticket: u64 },
}

/// One step of a call.
enum AcquireStep {
    /// Take the lock if it is free.
    Take,
    /// Enter the queue with this value, if these conditions hold.
    Enter(Vec<u8>, Vec<Compare>),
    /// Read the queue.
    Look,
}

/// The queue as a step found it.
struct FoundQueue {
    header: ResponseHeader,
    queue: Vec<QueueEntry>,
    /// The step added the token.
    added: bool,
}

impl EtcdClient {
    /// Takes the lock if it is free, or if it has room for one more holder.
    pub(crate) async fn try_acquire(
        &self,
        connection: &EtcdConnection,
        attempt: &Attempt,
    ) -> Result<Answer, EtcdFault> {
        let Attempt { owner, term, look } = attempt;
        let mode = AcquireMode::Try { look: *look };
        let call = self.acquire_call(connection, owner, term.stored_for(), mode)?;
        let entered = call.run().await;
        call.forget_failed_try(&entered);
        Ok(match entered? {
            Entered::Granted { fence, sent, .. } => Answer::Granted { fence, sent },
            Entered::Queued { remaining, .. } => Answer::Taken { remaining },
        })
    }

    /// Takes the lock if it is free or the token's turn has come. Otherwise lets the token wait. It can be repeated any
    /// number of times.
    pub(crate) async fn enter(
        &self,
        connection: &EtcdConnection,
        entry: &Entry,
    ) -> Result<Entered, EtcdFault> {
        let Entry { owner, term, ticket } = entry;
        let mode = AcquireMode::Enter { ticket: *ticket };
        self.acquire_call(connection, owner, term.stored_for(), mode)?.run().await
    }

    fn acquire_call<'a>(
        &'a self,
        connection: &'a EtcdConnection,
        owner: &'a Arc<Owner>,
        ttl: Duration,
        mode: AcquireMode,
    ) -> Result<AcquireCall<'a>, EtcdFault> {
        let too_long =
            || EtcdFault::refused("the key is too long: with its prefix it may have 2000 bytes");
        let prefix = LockPrefix::of(owner.lock.stored()).ok_or_else(too_long)?;
        let fence = self.fence_key(&owner.lock).as_bytes();
        let may_wait = matches!(mode, AcquireMode::Enter { .. });
        let notes = GrantNotes::new(owner, connection, may_wait);
        let ttl = whole_seconds(ttl);
        Ok(AcquireCall { client: self, connection, owner, ttl, mode, prefix, fence, notes })
    }
}

impl AcquireCall<'_> {
    async fn run(&self) -> Result<Entered, EtcdFault> {
        let (mut shared, mut added) = (false, false);
        for _ in 0..MOST_ATTEMPTS {
            let base = self.client.base(self.connection, self.fence).await?;
            let step = self.next_step(shared).await?;
            let Some(found) = self.send(step, &base).await? else { continue };
            added |= found.added;
            let own = found.queue.iter().position(|entry| entry.token == self.owner.token);
            match own {
                Some(at) if at < holder_count(&found.queue) => {
                    if let Some(granted) = self.granted(&found, at, &base).await? {
                        return Ok(granted);
                    }
                }
                Some(at) if self.is_try() => return self.withdraw(&found.queue, at).await,
                Some(at) => return Ok(self.waits(&found, at, added)),
                // The lock is held, but it may have room for one more holder.
                None if self.is_try() && !shared && self.fits(&found.queue) => shared = true,
                None if self.is_try() => return self.held(&found.queue).await,
                // The token's key is gone. The next step enters the queue again.
                None => self.forget_key(),
            }
        }
        Err(EtcdFault::unsteady())
    }

    async fn next_step(&self, shared: bool) -> Result<AcquireStep, EtcdFault> {
        let queued = self.client.tokens.get(&self.owner.token);
        if queued.is_some_and(|queued| queued.created != 0) {
            return Ok(AcquireStep::Look);
        }
        let absent = Compare::absent(self.prefix.key(&self.owner.token));
        match self.mode {
            AcquireMode::Try { .. } if !shared => Ok(AcquireStep::Take),
            AcquireMode::Try { .. } | AcquireMode::Enter { ticket: 0 } => {
                Ok(AcquireStep::Enter(QueuePosition::last(self.owner.limit), vec![absent]))
            }
            AcquireMode::Enter { ticket } => self.enter_again(ticket, absent).await,
        }
    }

    /// Returns the step that takes an earlier place again.
    async fn enter_again(&self, ticket: u64, absent: Compare) -> Result<AcquireStep, EtcdFault> {
        let read = TxnRequest::unconditional(vec![read_queue(&self.prefix)]);
        let found = txn(self.connection, &read).await?;
        let queue = queue_of(&self.prefix, found.last_keys());
        let (holders, ticket) = (holder_count(&queue), i64::try_from(ticket).unwrap_or(i64::MAX));
        Ok(match QueuePosition::again(self.owner.limit, ticket, &queue) {
            Some(value) if holders < MOST_CHECKED => {
                // Meanwhile, no other token may become a holder, or take an earlier place again.
                let (start, end) = (self.prefix.start().to_vec(), self.prefix.end());
                let mut conditions = vec![Compare::unchanged(start, end, found.header.revision)];
                conditions.extend(
                    queue[..=holders].iter().map(|entry| {
                        Compare::created(self.prefix.key(&entry.token), entry.created)
                    }),
                );
                conditions.push(absent);
                AcquireStep::Enter(value, conditions)
            }
            _ => AcquireStep::Enter(QueuePosition::last(self.owner.limit), vec![absent]),
        })
    }

    /// Sends a step. Returns `None` if its outcome does not count, and the next step must be chosen again.
    async fn send(
        &self,
        step: AcquireStep,
        base: &FenceBase,
    ) -> Result<Option<FoundQueue>, EtcdFault> {
        let (fence, key) = (self.fence.to_vec(), self.prefix.key(&self.owner.token));
        let mut lease = self.lease(&step).await?;
        let put = |value: &[u8]| RequestOp::put(key.clone(), value.to_vec(), lease.id);
        let is_base = Compare::has_value(fence.clone(), base.text.clone());
        let (conditions, success) = match &step {
            AcquireStep::Take => {
                let empty = Compare::empty(self.prefix.start().to_vec(), self.prefix.end());
                (
                    vec![empty],
                    vec![put(&QueuePosition::last(self.owner.limit)), read_queue(&self.prefix)],
                )
            }
            AcquireStep::Enter(value, conditions) => {
                (conditions.clone(), vec![put(value), read_queue(&self.prefix)])
            }
            AcquireStep::Look => (Vec::new(), vec![read_queue(&self.prefix)]),
        };
        let request = TxnRequest {
            compare: [is_base].into_iter().chain(conditions).collect(),
            success,
            failure: vec![RequestOp::get(fence), read_queue(&self.prefix)],
        };
        let revision = self.client.fence.revision();
        let answer = txn_with_lease(self.connection, &request, &mut lease, &self.notes).await;
        let (done, is_alive) = match answer {
            Err(fault) if fault.lease_is_gone => {
                self.forget_lease(lease);
                return Ok(None);
            }
            answer => answer?,
        };
        let added = done.succeeded && !matches!(step, AcquireStep::Look);
        self.client.tokens.update(&self.owner.token, |queued| {
            if queued.lease.id == lease.id {
                queued.lease = lease;
            }
            if added {
                queued.created = done.header.revision;
            }
        });
        if !is_alive {
            self.forget_lease(lease);
            return Ok(None);
        }
        self.check_base(done, revision, base, added).await
    }

    /// Returns the queue that a step found. Returns `None` if the base of the fencing tokens was changed, or had to be
    /// raised.
    async fn check_base(
        &self,
        done: TxnResponse,
        revision: i64,
        base: &FenceBase,
        added: bool,
    ) -> Result<Option<FoundQueue>, EtcdFault> {
        let (client, fence) = (self.client, self.fence);
        let has_gone_back = client.fence.has_gone_back(done.header, revision);
        if !done.succeeded {
            let stored = client.fence.learn(fence, done.first_keys().first())?;
            if stored.as_ref() != Some(base) {
                return Ok(None);
            }
        }
        if has_gone_back || !base.is_current(done.header) {
            client.raise(self.connection, fence, Some(base), done.header).await?;
            return Ok(None);
        }
        let queue = queue_of(&self.prefix, done.last_keys());
        if let Some(own) = queue.iter().find(|entry| entry.token == self.owner.token) {
            let note = |queued: &mut QueuedToken| queued.created = own.created;
            client.tokens.update(&self.owner.token, note).ok_or_else(EtcdFault::given_up)?;
        }
        Ok(Some(FoundQueue { header: done.header, queue, added }))
    }

    /// Returns the lease of the token's key.
    async fn lease(&self, step: &AcquireStep) -> Result<EtcdLease, EtcdFault> {
        let (tokens, token) = (&self.client.tokens, &self.owner.token);
        if let Some(queued) = tokens.get(token) {
            if !self.is_try() {
                tokens.update(token, |queued| queued.is_enqueued = true);
            }
            return Ok(queued.lease);
        }
        let is_take = matches!(step, AcquireStep::Take);
        let wanted = if is_take { self.ttl } else { self.ttl.min(LONGEST_WAITER_LEASE) };
        let lease = self.client.lease(self.connection, wanted).await?;
        tokens.insert(QueuedToken::new(self.owner, &self.prefix, lease, !self.is_try()));
        // A concurrent call may have inserted the token first.
        Ok(tokens.get(token).map_or(lease, |queued| queued.lease))
    }

    /// Forgets a lease that has ended, and with it the token. The next step uses another lease.
    fn forget_lease(&self, lease: EtcdLease) {
        let has_lease =
            |queued: &QueuedToken| queued.releasing_since.is_none() && queued.lease.id == lease.id;
        if self.client.tokens.get(&self.owner.token).as_ref().is_some_and(has_lease) {
            self.client.tokens.remove(&self.owner.token);
        }
    }

    fn forget_key(&self) {
        self.client.tokens.update(&self.owner.token, |queued| queued.created = 0);
    }

    fn is_try(&self) -> bool {
        matches!(self.mode, AcquireMode::Try { .. })
    }

    /// Returns whether the lock has room for one more holder, and nobody waits.
    fn fits(&self, queue: &[QueueEntry]) -> bool {
        let is_exclusive = queue.iter().any(|entry| entry.position.limit.is_alone());
        let all_hold = holder_count(queue) == queue.len();
        !is_exclusive && all_hold && self.owner.limit.fits(queue.len())
    }

    /// Removes the key of a try that found no room.
    async fn withdraw(&self, queue: &[QueueEntry], at: usize) -> Result<Entered, EtcdFault> {
        let token = &self.owner.token;
        let is_enqueued = self.client.tokens.get(token).is_some_and(|queued| queued.is_enqueued);
        if !is_enqueued {
            let delete = RequestOp::delete(self.prefix.key(token));
            let deleted = txn(self.connection, &TxnRequest::unconditional(vec![delete])).await;
            deleted.map_err(|fault| EtcdFault { answered: false, ..fault })?;
            self.forget_key();
        }
        self.held(&queue[..at]).await
    }

    /// Returns the answer that the lock is held.
    async fn held(&self, queue: &[QueueEntry]) -> Result<Entered, EtcdFault> {
        let looks = self.mode == AcquireMode::Try { look: true };
        let holder = queue[..holder_count(queue)].last().filter(|_| looks);
        let remaining = match holder {
            Some(holder) => remaining(self.connection, holder.lease).await?,
            None => None,
        };
        Ok(Entered::Queued { ticket: 0, remaining, rank: 0, behind: 0, added: false })
    }

    /// Forgets the token of a try that left nothing in etcd, and gives its leases back.
    fn forget_failed_try(&self, entered: &Result<Entered, EtcdFault>) {
        let left_nothing = match entered {
            Ok(Entered::Granted { .. }) => false,
            Ok(Entered::Queued { .. }) => true,
            Err(fault) => fault.answered,
        };
        let is_unused = |queued: &QueuedToken| !queued.is_enqueued && queued.created == 0;
        let queued = self.client.tokens.get(&self.owner.token).filter(|_| left_nothing);
        if let Some(queued) = queued.filter(is_unused) {
            self.client.tokens.remove(&self.owner.token);
            queued.leases().for_each(|lease| self.client.leases.give_back(lease));
        }
    }

    /// Completes a grant once the token is among the holders. Returns `None` if that has changed meanwhile.
    async fn granted(
        &self,
        found: &FoundQueue,
        at: usize,
        base: &FenceBase,
    ) -> Result<Option<Entered>, EtcdFault> {
        let own = &found.queue[at];
        let Some(queued) = self.client.tokens.get(&self.owner.token) else { return Ok(None) };
        let has_lease = own.lease == queued.lease.id && queued.lease.seconds >= self.ttl;
        let has_waited = own.created != found.header.revision;
        // Several holders of permits may see their turn in the same revision. Each needs a revision of its own for its
        // fencing token.
        let is_permit = self.owner.limit.as_permits().is_some();
        let needs_revision = is_permit && has_waited && !queued.is_held;
        let header = match has_lease && !needs_revision {
            true => found.header,
            false => match self.attach_lease(own, queued.lease, base).await? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let fence = self.client.fence.draw(base, header);
        let contended = holder_count(&found.queue) < found.queue.len();
        self.hold(contended, found.header.revision + 1).ok_or_else(EtcdFault::given_up)?;
        Ok(Some(Entered::Granted { fence, sent: self.notes.sent(), contended }))
    }

    /// Gives the token's key the lease that was asked for, and a revision of its own.
    async fn attach_lease(
        &self,
        own: &QueueEntry,
        present: EtcdLease,
        base: &FenceBase,
    ) -> Result<Option<ResponseHeader>, EtcdFault> {
        let mut lease = match own.lease == present.id && present.seconds >= self.ttl {
            true => present,
            false => self.client.lease(self.connection, self.ttl).await?,
        };
        let (tokens, token) = (&self.client.tokens, &self.owner.token);
        let key = self.prefix.key(token);
        if lease.id != present.id {
            let note = |queued: &mut QueuedToken| queued.next_lease = Some(lease);
            tokens.update(token, note).ok_or_else(EtcdFault::given_up)?;
        }
        let request = TxnRequest {
            compare: vec![
                Compare::has_value(self.fence.to_vec(), base.text.clone()),
                Compare::created(key.clone(), own.created),
            ],
            success: vec![RequestOp::attach_lease(key, lease.id)],
            failure: Vec::new(),
        };
        let answer = txn_with_lease(self.connection, &request, &mut lease, &self.notes).await;
        let (done, is_alive) = match answer {
            Err(fault) if fault.lease_is_gone => {
                tokens.update(token, |queued| queued.next_lease = None);
                return Ok(None);
            }
            answer => answer?,
        };
        if !done.succeeded || !is_alive || !base.is_current(done.header) {
            return Ok(None);
        }
        let old = tokens.update(token, |queued| {
            queued.next_lease = None;
            std::mem::replace(&mut queued.lease, lease)
        });
        if let Some(old) = old.filter(|old| old.id != lease.id && old.id == own.lease) {
            self.client.leases.give_back(old);
        }
        Ok(Some(done.header))
    }

    /// Notes that the token holds the lock, and watches its key. Returns `None` if its release has begun.
    fn hold(&self, contended: bool, from: i64) -> Option<()> {
        let (connection, token) = (self.connection, &self.owner.token);
        let is_watched = self.client.tokens.update(token, |queued| {
            queued.is_held = true;
            if queued.is_enqueued {
                queued.unwatch_turn(connection);
                queued.watch_loss(connection, from);
                queued.watch_waiters(connection, contended, from);
            }
            queued.is_enqueued
        })?;
        if !is_watched {
            // Most locks that were free are held for a moment only, and nobody waits for them.
            let tokens = self.client.tokens.clone();
            let (connection, token) = (connection.clone(), token.clone());
            self.client.handle.spawn(async move {
                tokio::time::sleep(SHORT_HOLD).await;
                tokens.update(&token, |queued| {
                    queued.watch_loss(&connection, from);
                    queued.watch_waiters(&connection, contended, from);
                });
            });
        }
        Some(())
    }

    /// Lets the token wait: a notification tells it when its turn may have come.
    fn waits(&self, found: &FoundQueue, at: usize, added: bool) -> Entered {
        let FoundQueue { header, queue, .. } = found;
        let (own, from) = (&queue[at].position, header.revision + 1);
        let share = |other: &&QueueEntry| own.limit.is_read() && other.position.limit.is_read();
        let behind = queue[at + 1..].iter().filter(|other| !share(other)).count() as u64;
        let (key, end, count) = match blocker(queue, at) {
            Blocker::Entry(at) => (self.prefix.key(&queue[at].token), Vec::new(), 1),
            Blocker::Any(count) => (self.prefix.start().to_vec(), self.prefix.end(), count),
        };
        self.client.tokens.update(&self.owner.token, |queued| {
            queued.is_held = false;
            queued.watch_turn(self.connection, &key, &end, count, from);
            queued.watch_waiters(self.connection, behind > 0, from);
        });
        Entered::Queued {
            ticket: own.ticket.unsigned_abs(),
            remaining: None,
            rank: (at - holder_count(queue)) as u64,
            behind,
            added,
        }
    }
}
