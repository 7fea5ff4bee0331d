//! The commands that may grant a lock: a try, and an entry into the queue.

use std::time::Duration;

use crate::client::{EtcdClient, Note, remaining, txn, txn_with_lease};
use crate::connection::EtcdConnection;
use crate::fault::EtcdFault;
use crate::fence::FenceBase;
use crate::keys::LockPrefix;
use crate::lease::{EtcdLease, whole_seconds};
use crate::ordering::{CommandEffect, OrderedCommand};
use crate::proto::{Compare, RequestOp, ResponseHeader, TxnRequest, TxnResponse};
use crate::queue::{
    Blocker, QueueEntry, QueuePosition, UNBOUNDED, blocker, holder_count, queue_of, read_queue,
};
use crate::waiters::QueuedToken;
use crate::watch::WatchOwner;

/// The most attempts while the base of the fencing tokens, a lease or the queue changes.
const MOST_ATTEMPTS: usize = 8;
/// The longest lease of a waiter, in seconds. A waiter that died blocks the others for as long. Once it holds the lock,
/// a waiter has the lease that was asked for.
const LONGEST_WAITER_LEASE: u64 = 10;
/// The most holders whose keys a transaction checks. etcd accepts at most 128 conditions.
const MOST_CHECKED: usize = 100;
/// A lock that is held for less than this needs no watches.
const SHORT_HOLD: Duration = Duration::from_millis(20);

/// A token that wants a lock.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// The token.
    pub token: &'a str,
    /// The most holders that the lock may have once the token is one; `u32::MAX` for any number.
    pub most: u32,
    /// The time to live.
    pub ttl: Duration,
    /// The place that it had before; 0 for one at the end.
    pub ticket: u64,
    /// It takes the lock or leaves nothing.
    pub is_try: bool,
    /// If it is a try and the lock is held, ask how long the holder's lease still runs.
    pub look: bool,
}

/// The grant of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// A value above that of every exclusive holder before, and below that of every later one.
    pub fence: u64,
    /// Others wait.
    pub contended: bool,
}

/// The answer to a token that wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The token holds the lock.
    Granted(Granted),
    /// It does not hold the lock. Unless it only tried, it waits.
    Waits {
        /// Its place.
        ticket: u64,
        /// The rest of a holder's lease, if that was asked for.
        remaining: Option<Duration>,
        /// The number of waiters before it.
        rank: u64,
        /// The number of waiters after it.
        behind: u64,
        /// It was not in the queue before.
        added: bool,
    },
}

/// One call, with the arguments of all its steps.
struct AcquireCall<'a> {
    client: &'a EtcdClient,
    connection: &'a EtcdConnection,
    ask: &'a Ask<'a>,
    prefix: LockPrefix,
    note: &'a dyn Note,
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
    /// Registers a command that may acquire the lock of this name. Call this at its first poll.
    pub fn takes(&self, name: &str) -> OrderedCommand<'_> {
        self.order.begin(name, CommandEffect::Acquire)
    }

    /// Takes the lock if it is free or the token's turn has come. Otherwise lets the token wait. It can be repeated any
    /// number of times.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked. The token may hold the lock, or wait for it.
    pub async fn acquire(
        &self,
        connection: &EtcdConnection,
        ask: &Ask<'_>,
        note: &dyn Note,
    ) -> Result<Reply, EtcdFault> {
        let too_long =
            || EtcdFault::refused("the key is too long: with its prefix it may have 2000 bytes");
        let prefix = LockPrefix::of(ask.name).ok_or_else(too_long)?;
        let call = AcquireCall { client: self, connection, ask, prefix, note };
        let reply = call.run().await;
        if ask.is_try {
            call.forget_failed_try(&reply);
        }
        reply
    }
}

impl AcquireCall<'_> {
    async fn run(&self) -> Result<Reply, EtcdFault> {
        let (mut shared, mut added) = (false, false);
        for _ in 0..MOST_ATTEMPTS {
            let base = self.client.base(self.connection, self.ask.fence.as_bytes()).await?;
            let step = self.next_step(shared).await?;
            let Some(found) = self.send(step, &base).await? else { continue };
            added |= found.added;
            let own = found.queue.iter().position(|entry| entry.token == self.ask.token);
            match own {
                Some(at) if at < holder_count(&found.queue) => {
                    if let Some(granted) = self.granted(&found, at, &base).await? {
                        return Ok(Reply::Granted(granted));
                    }
                }
                Some(at) if self.ask.is_try => return self.withdraw(&found.queue, at).await,
                Some(at) => return Ok(self.waits(&found, at, added)),
                // The lock is held, but it may have room for one more holder.
                None if self.ask.is_try && !shared && self.fits(&found.queue) => shared = true,
                None if self.ask.is_try => return self.held(&found.queue).await,
                // The token's key is gone. The next step enters the queue again.
                None => self.forget_key(),
            }
        }
        Err(EtcdFault::unsteady())
    }

    async fn next_step(&self, shared: bool) -> Result<AcquireStep, EtcdFault> {
        let Ask { token, most, ticket, is_try, .. } = *self.ask;
        if self.client.tokens.get(token).is_some_and(|queued| queued.created != 0) {
            return Ok(AcquireStep::Look);
        }
        if is_try && !shared {
            return Ok(AcquireStep::Take);
        }
        let absent = Compare::absent(self.prefix.key(token));
        if ticket == 0 {
            return Ok(AcquireStep::Enter(QueuePosition::last(most), vec![absent]));
        }
        self.enter_again(ticket, absent).await
    }

    /// Returns the step that takes an earlier place again.
    async fn enter_again(&self, ticket: u64, absent: Compare) -> Result<AcquireStep, EtcdFault> {
        let read = TxnRequest::unconditional(vec![read_queue(&self.prefix)]);
        let found = txn(self.connection, &read).await?;
        let queue = queue_of(&self.prefix, found.last_keys());
        let (holders, ticket) = (holder_count(&queue), i64::try_from(ticket).unwrap_or(i64::MAX));
        Ok(match QueuePosition::again(self.ask.most, ticket, &queue) {
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
            _ => AcquireStep::Enter(QueuePosition::last(self.ask.most), vec![absent]),
        })
    }

    /// Sends a step. Returns `None` if its outcome does not count, and the next step must be chosen again.
    async fn send(
        &self,
        step: AcquireStep,
        base: &FenceBase,
    ) -> Result<Option<FoundQueue>, EtcdFault> {
        let (fence, key) = (self.ask.fence.as_bytes().to_vec(), self.prefix.key(self.ask.token));
        let mut lease = self.lease(&step).await?;
        let put = |value: &[u8]| RequestOp::put(key.clone(), value.to_vec(), lease.id);
        let is_base = Compare::has_value(fence.clone(), base.text.clone());
        let (conditions, success) = match &step {
            AcquireStep::Take => {
                let empty = Compare::empty(self.prefix.start().to_vec(), self.prefix.end());
                (
                    vec![empty],
                    vec![put(&QueuePosition::last(self.ask.most)), read_queue(&self.prefix)],
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
        let answer = txn_with_lease(self.connection, &request, &mut lease, self.note).await;
        let (done, is_alive) = match answer {
            Err(fault) if fault.lease_is_gone => {
                self.forget_lease(lease);
                return Ok(None);
            }
            answer => answer?,
        };
        let added = done.succeeded && !matches!(step, AcquireStep::Look);
        self.client.tokens.update(self.ask.token, |queued| {
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
        let (client, fence) = (self.client, self.ask.fence.as_bytes());
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
        if let Some(own) = queue.iter().find(|entry| entry.token == self.ask.token) {
            let note = |queued: &mut QueuedToken| queued.created = own.created;
            client.tokens.update(self.ask.token, note).ok_or_else(EtcdFault::given_up)?;
        }
        Ok(Some(FoundQueue { header: done.header, queue, added }))
    }

    /// Returns the lease of the token's key.
    async fn lease(&self, step: &AcquireStep) -> Result<EtcdLease, EtcdFault> {
        let (token, wanted) = (self.ask.token, whole_seconds(self.ask.ttl));
        let tokens = &self.client.tokens;
        if let Some(queued) = tokens.get(token) {
            if !self.ask.is_try {
                tokens.update(token, |queued| queued.is_enqueued = true);
            }
            return Ok(queued.lease);
        }
        let is_take = matches!(step, AcquireStep::Take);
        let wanted = if is_take { wanted } else { wanted.min(LONGEST_WAITER_LEASE) };
        let lease = self.client.lease(self.connection, wanted).await?;
        let owner = WatchOwner {
            name: self.ask.name.into(),
            token: token.into(),
            key: self.prefix.key(token).into(),
        };
        let mut queued = QueuedToken::new(owner, self.prefix.clone(), self.ask.most, lease);
        queued.is_enqueued = !self.ask.is_try;
        tokens.insert(queued);
        // A concurrent call may have inserted the token first.
        Ok(tokens.get(token).map_or(lease, |queued| queued.lease))
    }

    /// Forgets a lease that has ended, and with it the token. The next step uses another lease.
    fn forget_lease(&self, lease: EtcdLease) {
        let has_lease =
            |queued: &QueuedToken| queued.releasing_since.is_none() && queued.lease.id == lease.id;
        if self.client.tokens.get(self.ask.token).as_ref().is_some_and(has_lease) {
            self.client.tokens.remove(self.ask.token);
        }
    }

    fn forget_key(&self) {
        self.client.tokens.update(self.ask.token, |queued| queued.created = 0);
    }

    /// Returns whether the lock has room for one more holder, and nobody waits.
    fn fits(&self, queue: &[QueueEntry]) -> bool {
        let is_exclusive = queue.iter().any(|entry| entry.position.capacity == 1);
        !is_exclusive && holder_count(queue) == queue.len() && queue.len() < self.ask.most as usize
    }

    /// Removes the key of a try that found no room.
    async fn withdraw(&self, queue: &[QueueEntry], at: usize) -> Result<Reply, EtcdFault> {
        let token = self.ask.token;
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
    async fn held(&self, queue: &[QueueEntry]) -> Result<Reply, EtcdFault> {
        let holder = queue[..holder_count(queue)].last().filter(|_| self.ask.look);
        let remaining = match holder {
            Some(holder) => remaining(self.connection, holder.lease).await?,
            None => None,
        };
        Ok(Reply::Waits { ticket: 0, remaining, rank: 0, behind: 0, added: false })
    }

    /// Forgets the token of a try that left nothing in etcd, and gives its leases back.
    fn forget_failed_try(&self, reply: &Result<Reply, EtcdFault>) {
        let left_nothing = match reply {
            Ok(Reply::Granted(_)) => false,
            Ok(Reply::Waits { .. }) => true,
            Err(fault) => fault.answered,
        };
        let is_unused = |queued: &QueuedToken| !queued.is_enqueued && queued.created == 0;
        let queued = self.client.tokens.get(self.ask.token).filter(|_| left_nothing);
        if let Some(queued) = queued.filter(is_unused) {
            self.client.tokens.remove(self.ask.token);
            queued.leases().for_each(|lease| self.client.leases.give_back(lease));
        }
    }

    /// Completes a grant once the token is among the holders. Returns `None` if that has changed meanwhile.
    async fn granted(
        &self,
        found: &FoundQueue,
        at: usize,
        base: &FenceBase,
    ) -> Result<Option<Granted>, EtcdFault> {
        let own = &found.queue[at];
        let Some(queued) = self.client.tokens.get(self.ask.token) else { return Ok(None) };
        let has_lease =
            own.lease == queued.lease.id && queued.lease.seconds >= whole_seconds(self.ask.ttl);
        let has_waited = own.created != found.header.revision;
        // Several holders of permits may see their turn in the same revision. Each needs one of its own, which is the
        // base of its fencing token.
        let is_permit = self.ask.most != 1 && self.ask.most != UNBOUNDED;
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
        Ok(Some(Granted { fence, contended }))
    }

    /// Gives the token's key the lease that was asked for, and a revision of its own.
    async fn attach_lease(
        &self,
        own: &QueueEntry,
        present: EtcdLease,
        base: &FenceBase,
    ) -> Result<Option<ResponseHeader>, EtcdFault> {
        let wanted = whole_seconds(self.ask.ttl);
        let mut lease = match own.lease == present.id && present.seconds >= wanted {
            true => present,
            false => self.client.lease(self.connection, wanted).await?,
        };
        let (token, key) = (self.ask.token, self.prefix.key(self.ask.token));
        let tokens = &self.client.tokens;
        if lease.id != present.id {
            let note = |queued: &mut QueuedToken| queued.next_lease = Some(lease);
            tokens.update(token, note).ok_or_else(EtcdFault::given_up)?;
        }
        let request = TxnRequest {
            compare: vec![
                Compare::has_value(self.ask.fence.into(), base.text.clone()),
                Compare::created(key.clone(), own.created),
            ],
            success: vec![RequestOp::attach_lease(key, lease.id)],
            failure: Vec::new(),
        };
        let answer = txn_with_lease(self.connection, &request, &mut lease, self.note).await;
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
        let (connection, token) = (self.connection, self.ask.token);
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
            let (connection, token) = (connection.clone(), token.to_owned());
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
    fn waits(&self, found: &FoundQueue, at: usize, added: bool) -> Reply {
        let FoundQueue { header, queue, .. } = found;
        let (own, from) = (&queue[at].position, header.revision + 1);
        let share = |other: &&QueueEntry| own.is_reader() && other.position.is_reader();
        let behind = queue[at + 1..].iter().filter(|other| !share(other)).count() as u64;
        let (key, end, count) = match blocker(queue, at) {
            Blocker::Entry(at) => (self.prefix.key(&queue[at].token), Vec::new(), 1),
            Blocker::Any(count) => (self.prefix.start().to_vec(), self.prefix.end(), count),
        };
        self.client.tokens.update(self.ask.token, |queued| {
            queued.is_held = false;
            queued.watch_turn(self.connection, &key, &end, count, from);
            queued.watch_waiters(self.connection, behind > 0, from);
        });
        Reply::Waits {
            ticket: own.ticket.unsigned_abs(),
            remaining: None,
            rank: (at - holder_count(queue)) as u64,
            behind,
            added,
        }
    }
}
