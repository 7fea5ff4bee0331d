//! The commands for a lock that a token holds or waits for: renew, release, exchange for another token, and inspect.

use distlock_core::name::LockName;
use distlock_core::store::admin::Walked;
use distlock_core::store::{Exchange, Exchanged, Freed, Held, Holder, Owned, Owner, Renewal};

use crate::client::{EtcdClient, GrantNotes, all, both, remaining, txn, txn_with_lease};
use crate::connection::EtcdConnection;
use crate::fault::EtcdFault;
use crate::grpc;
use crate::keep_alive::keep_tokens_alive;
use crate::keys::{LockPrefix, name_of, range_of_locks};
use crate::lease::{EtcdLease, whole_seconds};
use crate::proto::{Compare, LeaseRequest, RequestOp, TxnRequest, TxnResponse};
use crate::queue::{QueuePosition, holder_count, queue_of, read_queue};
use crate::waiters::QueuedToken;

/// The most renewals in one transaction. Each has two operations, and etcd accepts at most 128.
const MOST_TOGETHER: usize = 60;
/// The most attempts while the base of the fencing tokens or the queue changes.
const MOST_ATTEMPTS: usize = 3;
/// The number of keys on one page of a listing.
const PAGE: i64 = 500;

impl EtcdClient {
    /// Extends leases by their time to live. Returns one answer for each, in order.
    pub(crate) async fn renew(
        &self,
        connection: &EtcdConnection,
        renewals: &[Renewal],
    ) -> Result<Vec<Owned>, EtcdFault> {
        let queued = renewals.iter().map(|one| self.tokens.get(&one.owner.token));
        let queued: Vec<_> = queued.collect();
        let leases: Vec<_> = queued.iter().flatten().map(|queued| queued.lease).collect();
        let parts = queued.chunks(MOST_TOGETHER).zip(renewals.chunks(MOST_TOGETHER));
        let checks =
            parts.map(|(queued, renewals)| self.check(connection, queued, renewals)).collect();
        let alive = keep_tokens_alive(&self.tokens, connection, &leases);
        let (alive, checks) = both(alive, all(checks)).await;
        let (mut alive, mut answers) = (alive?.into_iter(), Vec::new());
        for check in checks {
            answers.extend(check?);
        }
        for (answer, queued) in answers.iter_mut().zip(&queued) {
            if queued.is_none() || alive.next() != Some(true) {
                *answer = Owned::No;
            }
        }
        Ok(answers)
    }

    /// Checks for some tokens whether their keys exist and whether others wait.
    async fn check(
        &self,
        connection: &EtcdConnection,
        queued: &[Option<QueuedToken>],
        renewals: &[Renewal],
    ) -> Result<Vec<Owned>, EtcdFault> {
        let ops = queued.iter().flatten().flat_map(|queued| {
            // If the lock may have several holders, only the order of the keys tells whether others wait.
            let others = match queued.token.owner.limit.is_alone() {
                true => RequestOp::count(queued.prefix.start().to_vec(), queued.prefix.end()),
                false => read_queue(&queued.prefix),
            };
            [RequestOp::get(queued.token.key.to_vec()), others]
        });
        let found = txn(connection, &TxnRequest::unconditional(ops.collect())).await?;
        let from = found.header.revision + 1;
        let mut pairs = found.responses.chunks_exact(2);
        let mut answers = Vec::with_capacity(renewals.len());
        for (queued, renewal) in queued.iter().zip(renewals) {
            let Some(queued) = queued else {
                answers.push(Owned::No);
                continue;
            };
            let Some([own, others]) = pairs.next() else { return Err(EtcdFault::unexpected()) };
            if own.keys().first().is_none_or(|own| own.create_revision != queued.created) {
                answers.push(Owned::No);
                continue;
            }
            let contended = match renewal.owner.limit.is_alone() {
                true => others.count() > 1,
                false => {
                    let queue = queue_of(&queued.prefix, others.keys());
                    holder_count(&queue) < queue.len()
                }
            };
            self.tokens.update(&renewal.owner.token, |queued| {
                queued.watch_loss(connection, from);
                queued.watch_waiters(connection, contended, from);
            });
            let fence = match renewal.draw {
                true => Some(self.draw_fence(connection, queued, renewal).await?),
                false => None,
            };
            answers.push(Owned::Yes { contended, fence });
        }
        Ok(answers)
    }

    /// Draws a fencing token above all earlier ones, by writing the key again.
    async fn draw_fence(
        &self,
        connection: &EtcdConnection,
        queued: &QueuedToken,
        renewal: &Renewal,
    ) -> Result<u64, EtcdFault> {
        let fence = self.fence_key(&renewal.owner.lock).as_bytes();
        let key = queued.token.key.to_vec();
        for _ in 0..MOST_ATTEMPTS {
            let base = self.base(connection, fence).await?;
            let touch = TxnRequest {
                compare: vec![
                    Compare::created(key.clone(), queued.created),
                    Compare::has_value(fence.to_vec(), base.text.clone()),
                ],
                success: vec![RequestOp::touch(key.clone())],
                failure: vec![RequestOp::get(fence.to_vec())],
            };
            let revision = self.fence.revision();
            let done = txn(connection, &touch).await?;
            let has_gone_back = self.fence.has_gone_back(done.header, revision);
            if !done.succeeded {
                self.fence.learn(fence, done.last_keys().first())?;
            } else if has_gone_back || !base.is_current(done.header) {
                self.raise(connection, fence, Some(&base), done.header).await?;
            } else {
                return Ok(self.fence.draw(&base, done.header));
            }
        }
        Err(EtcdFault::unsteady())
    }

    /// Lets the key of a token stay until its lease ends. Returns whether the key exists.
    pub(crate) async fn keep(
        &self,
        connection: &EtcdConnection,
        owner: &Owner,
    ) -> Result<bool, EtcdFault> {
        let Some(queued) = self.tokens.get(&owner.token) else {
            return exists(connection, owner).await;
        };
        let leases = [queued.lease];
        let alive = keep_tokens_alive(&self.tokens, connection, &leases);
        let (exists, alive) = both(exists(connection, owner), alive).await;
        Ok(exists? && alive?.first() == Some(&true))
    }

    /// Deletes the key of a token: it no longer holds the lock or waits for it. If a command of the token may
    /// still be under way, its lease is revoked, so that the command can have no effect.
    pub(crate) async fn release(
        &self,
        connection: &EtcdConnection,
        owner: &Owner,
    ) -> Result<Freed, EtcdFault> {
        let Some(prefix) = LockPrefix::of(owner.lock.stored()) else { return Ok(Freed::nothing()) };
        let (token, in_doubt) = (&owner.token, owner.in_doubt());
        // From now on its lease is not kept alive.
        let queued = self.tokens.begin_release(token);
        if let Some(mut queued) = queued.clone() {
            queued.unwatch_all(connection);
        }
        let delete = TxnRequest::unconditional(vec![RequestOp::delete(prefix.key(token))]);
        let deleted = txn(connection, &delete).await?;
        let was_ours = deleted.responses.first().is_some_and(|done| done.count() > 0);
        let Some(queued) = queued else {
            return Ok(Freed { was_ours, settled: !in_doubt, ..Freed::nothing() });
        };
        // Which of two leases the key had is not known.
        let in_doubt = in_doubt || queued.next_lease.is_some();
        for lease in queued.leases() {
            if in_doubt {
                revoke(connection, lease).await?;
            } else {
                self.leases.give_back(lease);
            }
        }
        self.tokens.remove(token);
        Ok(Freed { was_ours, ..Freed::nothing() })
    }

    /// Hands a lock from a token that holds it exclusively to one that shares it, without a gap. It can be repeated any
    /// number of times.
    pub(crate) async fn exchange(
        &self,
        connection: &EtcdConnection,
        exchange: &Exchange,
    ) -> Result<Exchanged, EtcdFault> {
        let Exchange { old, new, .. } = exchange;
        let Some(prefix) = LockPrefix::of(new.lock.stored()) else {
            return Ok(Exchanged::NotHeld);
        };
        let fence = self.fence_key(&new.lock).as_bytes();
        let (old_key, new_key) = (prefix.key(&old.token), prefix.key(&new.token));
        let notes = GrantNotes::new(new, connection, true);
        for _ in 0..MOST_ATTEMPTS {
            let base = self.base(connection, fence).await?;
            let read = TxnRequest::unconditional(vec![read_queue(&prefix)]);
            let queue = queue_of(&prefix, txn(connection, &read).await?.last_keys());
            let mut lease = self.lease_of_new(connection, exchange, &prefix).await?;
            let find = |token: &str| queue.iter().find(|entry| entry.token == token);
            let (condition, mut success) = match (find(&old.token), find(&new.token)) {
                (None, None) => return Ok(Exchanged::NotHeld),
                (_, Some(new)) => (Compare::created(new_key.clone(), new.created), Vec::new()),
                (Some(old), None) => {
                    let value = QueuePosition::instead(new.limit, old.position);
                    let put = RequestOp::put(new_key.clone(), value, lease.id);
                    let delete = RequestOp::delete(old_key.clone());
                    (Compare::created(old_key.clone(), old.created), vec![delete, put])
                }
            };
            success.push(read_queue(&prefix));
            let request = TxnRequest {
                compare: vec![Compare::has_value(fence.to_vec(), base.text.clone()), condition],
                success,
                failure: vec![RequestOp::get(fence.to_vec())],
            };
            let (done, is_alive) = txn_with_lease(connection, &request, &mut lease, &notes).await?;
            if !done.succeeded {
                self.fence.learn(fence, done.last_keys().first())?;
            } else if !base.is_current(done.header) {
                self.raise(connection, fence, Some(&base), done.header).await?;
            } else if is_alive {
                let contended = self.exchanged(connection, new, &prefix, &done);
                let fence = base.token_at(done.header);
                return Ok(Exchanged::Granted { fence, sent: notes.sent(), contended });
            }
        }
        Err(EtcdFault::unsteady())
    }

    /// Notes that the new token holds the lock. Returns whether others wait.
    fn exchanged(
        &self,
        connection: &EtcdConnection,
        new: &Owner,
        prefix: &LockPrefix,
        done: &TxnResponse,
    ) -> bool {
        let (queue, from) = (queue_of(prefix, done.last_keys()), done.header.revision + 1);
        let contended = holder_count(&queue) < queue.len();
        let created = queue.iter().find(|entry| entry.token == new.token).map(|own| own.created);
        self.tokens.update(&new.token, |queued| {
            (queued.created, queued.is_held) = (created.unwrap_or_default(), true);
            queued.watch_loss(connection, from);
            queued.watch_waiters(connection, contended, from);
        });
        contended
    }

    async fn lease_of_new(
        &self,
        connection: &EtcdConnection,
        Exchange { new, term, .. }: &Exchange,
        prefix: &LockPrefix,
    ) -> Result<EtcdLease, EtcdFault> {
        if let Some(queued) = self.tokens.get(&new.token) {
            return Ok(queued.lease);
        }
        let lease = self.lease(connection, whole_seconds(term.stored_for())).await?;
        self.tokens.insert(QueuedToken::new(new, prefix, lease, true));
        Ok(lease)
    }

    /// Returns the holders and the waiters of a lock, or `None` if it is free.
    pub(crate) async fn inspect(
        &self,
        connection: &EtcdConnection,
        lock: &LockName,
    ) -> Result<Option<Held>, EtcdFault> {
        let Some(prefix) = LockPrefix::of(lock.stored()) else { return Ok(None) };
        let read = TxnRequest::unconditional(vec![read_queue(&prefix)]);
        let mut queue = queue_of(&prefix, txn(connection, &read).await?.last_keys());
        let waiters = queue.split_off(holder_count(&queue));
        let leases = queue.iter().map(|entry| remaining(connection, entry.lease)).collect();
        let mut holders = Vec::new();
        for (entry, remaining) in queue.into_iter().zip(all(leases).await) {
            // A holder whose lease has ended meanwhile no longer holds the lock.
            if let Some(remaining) = remaining? {
                holders.push(Holder { token: entry.token, remaining: Some(remaining) });
            }
        }
        holders.sort_by_key(|holder| holder.remaining);
        let queue = waiters.into_iter().map(|entry| entry.token).collect();
        Ok((!holders.is_empty()).then_some(Held { holders, queue }))
    }

    /// Returns one page of the names of locks that begin like this. The cursor of the first page is empty.
    pub(crate) async fn names(
        &self,
        connection: &EtcdConnection,
        beginning: &str,
        cursor: &str,
    ) -> Result<Walked, EtcdFault> {
        let (start, end) = range_of_locks(beginning);
        let start = if cursor.is_empty() { start } else { cursor.as_bytes().to_vec() };
        let read = TxnRequest::unconditional(vec![RequestOp::page(start, end, PAGE)]);
        let found = txn(connection, &read).await?;
        let keys = found.last_keys();
        let mut names: Vec<_> = keys.iter().filter_map(|kv| name_of(&kv.key)).collect();
        names.dedup();
        let is_full = keys.len() as i64 >= PAGE;
        // The next page begins after all keys of the last lock.
        let last = names.last().filter(|_| is_full).and_then(|last| LockPrefix::of(last));
        let next = last.and_then(|last| String::from_utf8(last.end()).ok());
        Ok(Walked { names, next, missed: None })
    }
}

/// Returns whether the key of a token exists.
async fn exists(connection: &EtcdConnection, owner: &Owner) -> Result<bool, EtcdFault> {
    let Some(prefix) = LockPrefix::of(owner.lock.stored()) else { return Ok(false) };
    let read = TxnRequest::unconditional(vec![RequestOp::get(prefix.key(&owner.token))]);
    Ok(!txn(connection, &read).await?.last_keys().is_empty())
}

/// Revokes a lease. Succeeds if the lease does not exist.
async fn revoke(connection: &EtcdConnection, lease: EtcdLease) -> Result<(), EtcdFault> {
    let request = LeaseRequest { id: lease.id };
    let revoked = connection.channel.call::<()>(grpc::REVOKE, &request).await;
    match connection.judge(revoked) {
        Err(fault) if !fault.lease_is_gone => Err(fault),
        _ => Ok(()),
    }
}
