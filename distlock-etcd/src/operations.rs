//! The commands for a lock that a token holds or waits for: renew, release, exchange for another token, and inspect.

use std::time::Duration;

use crate::client::{EtcdClient, Note, all, both, remaining, txn, txn_with_lease};
use crate::connection::EtcdConnection;
use crate::fault::EtcdFault;
use crate::grpc;
use crate::keep_alive::keep_alive;
use crate::keys::{LockPrefix, name_of, range_of_locks};
use crate::lease::{EtcdLease, whole_seconds};
use crate::ordering::{CommandEffect, OrderedCommand};
use crate::proto::{Compare, LeaseRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse};
use crate::queue::{QueuePosition, holder_count, queue_of, read_queue};
use crate::waiters::QueuedToken;
use crate::watch::WatchOwner;

/// The most renewals in one transaction. Each has two operations, and etcd accepts at most 128.
const MOST_TOGETHER: usize = 60;
/// The most attempts while the base of the fencing tokens or the queue changes.
const MOST_ATTEMPTS: usize = 3;
/// The number of keys on one page of a listing.
const PAGE: i64 = 500;

/// A lease to extend.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// The token that holds it.
    pub token: &'a str,
    /// Draw a fencing token above all earlier ones.
    pub draw: bool,
}

/// The answer for a lock that the token still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Others wait.
    pub contended: bool,
    /// The fencing token that was drawn.
    pub fence: Option<u64>,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// The key of the token existed.
    pub was_there: bool,
    /// No command of the token can take effect any more.
    pub settled: bool,
}

/// The exchange of one token for another.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// The token that holds the lock exclusively.
    pub old: &'a str,
    /// The token that gets the lock.
    pub new: &'a str,
    /// The most holders that the lock may have beside it.
    pub most: u32,
    /// The time to live.
    pub ttl: Duration,
}

/// The holders and waiters of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The tokens of the holders, and the rests of their leases.
    pub holders: Vec<(String, Duration)>,
    /// The tokens of the waiters, in order.
    pub waiters: Vec<String>,
}

impl EtcdClient {
    /// Extends leases by their time to live. Returns one answer for each: `None` if the token does not hold the lock any
    /// more.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn renew(
        &self,
        connection: &EtcdConnection,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Option<Renewed>>, EtcdFault> {
        let queued: Vec<_> = renewals.iter().map(|one| self.tokens.get(one.token)).collect();
        let leases: Vec<_> = queued.iter().flatten().map(|queued| queued.lease).collect();
        let parts = queued.chunks(MOST_TOGETHER).zip(renewals.chunks(MOST_TOGETHER));
        let checks =
            parts.map(|(queued, renewals)| self.check(connection, queued, renewals)).collect();
        let alive = keep_alive(&self.tokens, connection, &leases);
        let (alive, checks) = both(alive, all(checks)).await;
        let (mut alive, mut answers) = (alive?.into_iter(), Vec::new());
        for check in checks {
            answers.extend(check?);
        }
        let is_alive: Vec<_> =
            queued.iter().map(|queued| queued.is_some() && alive.next() == Some(true)).collect();
        let judged = answers.into_iter().zip(is_alive);
        Ok(judged.map(|(answer, is_alive)| answer.filter(|_| is_alive)).collect())
    }

    /// Checks for some tokens whether their keys exist and whether others wait.
    async fn check(
        &self,
        connection: &EtcdConnection,
        queued: &[Option<QueuedToken>],
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Option<Renewed>>, EtcdFault> {
        let ops = queued.iter().flatten().flat_map(|queued| {
            // If the lock may have several holders, only the order of the keys tells whether others wait.
            let others = match queued.is_exclusive {
                true => RequestOp::count(queued.prefix.start().to_vec(), queued.prefix.end()),
                false => read_queue(&queued.prefix),
            };
            [RequestOp::get(queued.owner.key.to_vec()), others]
        });
        let found = txn(connection, &TxnRequest::unconditional(ops.collect())).await?;
        let from = found.header.revision + 1;
        let mut pairs = found.responses.chunks_exact(2);
        let mut answers = Vec::with_capacity(renewals.len());
        for (queued, renewal) in queued.iter().zip(renewals) {
            let Some(queued) = queued else {
                answers.push(None);
                continue;
            };
            let Some([own, others]) = pairs.next() else { return Err(EtcdFault::unexpected()) };
            if own.keys().first().is_none_or(|own| own.create_revision != queued.created) {
                answers.push(None);
                continue;
            }
            let contended = match queued.is_exclusive {
                true => others.count() > 1,
                false => {
                    let queue = queue_of(&queued.prefix, others.keys());
                    holder_count(&queue) < queue.len()
                }
            };
            self.tokens.update(renewal.token, |queued| {
                queued.watch_loss(connection, from);
                queued.watch_waiters(connection, contended, from);
            });
            let fence = match renewal.draw {
                true => Some(self.draw_fence(connection, queued, renewal).await?),
                false => None,
            };
            answers.push(Some(Renewed { contended, fence }));
        }
        Ok(answers)
    }

    /// Draws a fencing token above all earlier ones, by writing the key again.
    async fn draw_fence(
        &self,
        connection: &EtcdConnection,
        queued: &QueuedToken,
        renewal: &Renewal<'_>,
    ) -> Result<u64, EtcdFault> {
        let (fence, key) = (renewal.fence.as_bytes(), queued.owner.key.to_vec());
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
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn keep(
        &self,
        connection: &EtcdConnection,
        name: &str,
        token: &str,
    ) -> Result<bool, EtcdFault> {
        let Some(queued) = self.tokens.get(token) else {
            return exists(connection, name, token).await;
        };
        let leases = [queued.lease];
        let alive = keep_alive(&self.tokens, connection, &leases);
        let (exists, alive) = both(exists(connection, name, token), alive).await;
        Ok(exists? && alive?.first() == Some(&true))
    }

    /// Registers a command that may release the lock of this name. Call this at its first poll.
    pub fn frees(&self, name: &str) -> OrderedCommand<'_> {
        self.order.begin(name, CommandEffect::Release)
    }

    /// Deletes the key of a token: it neither holds the lock nor waits for it any more. With `doubt`, a command of the
    /// token may still be under way: then its lease is revoked, so that the command can have no effect.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn release(
        &self,
        connection: &EtcdConnection,
        name: &str,
        token: &str,
        doubt: bool,
    ) -> Result<Freed, EtcdFault> {
        let Some(prefix) = LockPrefix::of(name) else {
            return Ok(Freed { was_there: false, settled: true });
        };
        // From now on its lease is not kept alive.
        let queued = self.tokens.begin_release(token);
        if let Some(mut queued) = queued.clone() {
            queued.unwatch_all(connection);
        }
        let delete = TxnRequest::unconditional(vec![RequestOp::delete(prefix.key(token))]);
        let deleted = txn(connection, &delete).await?;
        let was_there = deleted.responses.first().is_some_and(|done: &ResponseOp| done.count() > 0);
        let Some(queued) = queued else { return Ok(Freed { was_there, settled: !doubt }) };
        // Which of two leases the key had is not known.
        let doubt = doubt || queued.next_lease.is_some();
        for lease in queued.leases() {
            if doubt {
                revoke(connection, lease).await?;
            } else {
                self.leases.give_back(lease);
            }
        }
        self.tokens.remove(token);
        Ok(Freed { was_there, settled: true })
    }

    /// Hands a lock from a token that holds it exclusively to one that shares it, without a gap. Returns `None` if the
    /// old token did not hold it. It can be repeated any number of times.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked. Either token may hold the lock.
    pub async fn exchange(
        &self,
        connection: &EtcdConnection,
        swap: &Swap<'_>,
        note: &dyn Note,
    ) -> Result<Option<(u64, bool)>, EtcdFault> {
        let Some(prefix) = LockPrefix::of(swap.name) else { return Ok(None) };
        let fence = swap.fence.as_bytes();
        for _ in 0..MOST_ATTEMPTS {
            let base = self.base(connection, fence).await?;
            let read = TxnRequest::unconditional(vec![read_queue(&prefix)]);
            let queue = queue_of(&prefix, txn(connection, &read).await?.last_keys());
            let mut lease = self.lease_of_new(connection, swap, &prefix).await?;
            let find = |token: &str| queue.iter().find(|entry| entry.token == token);
            let (condition, mut success) = match (find(swap.old), find(swap.new)) {
                (None, None) => return Ok(None),
                (_, Some(new)) => (Compare::created(prefix.key(swap.new), new.created), Vec::new()),
                (Some(old), None) => {
                    let value = QueuePosition::instead(swap.most, old.position);
                    let put = RequestOp::put(prefix.key(swap.new), value, lease.id);
                    let delete = RequestOp::delete(prefix.key(swap.old));
                    (Compare::created(prefix.key(swap.old), old.created), vec![delete, put])
                }
            };
            success.push(read_queue(&prefix));
            let request = TxnRequest {
                compare: vec![Compare::has_value(fence.to_vec(), base.text.clone()), condition],
                success,
                failure: vec![RequestOp::get(fence.to_vec())],
            };
            let (done, is_alive) = txn_with_lease(connection, &request, &mut lease, note).await?;
            if !done.succeeded {
                self.fence.learn(fence, done.last_keys().first())?;
            } else if !base.is_current(done.header) {
                self.raise(connection, fence, Some(&base), done.header).await?;
            } else if is_alive {
                let contended = self.exchanged(connection, swap, &prefix, &done);
                return Ok(Some((base.token_at(done.header), contended)));
            }
        }
        Err(EtcdFault::unsteady())
    }

    /// Notes that the new token holds the lock. Returns whether others wait.
    fn exchanged(
        &self,
        connection: &EtcdConnection,
        swap: &Swap<'_>,
        prefix: &LockPrefix,
        done: &TxnResponse,
    ) -> bool {
        let (queue, from) = (queue_of(prefix, done.last_keys()), done.header.revision + 1);
        let contended = holder_count(&queue) < queue.len();
        let created = queue.iter().find(|entry| entry.token == swap.new).map(|own| own.created);
        self.tokens.update(swap.new, |queued| {
            (queued.created, queued.is_held) = (created.unwrap_or_default(), true);
            queued.watch_loss(connection, from);
            queued.watch_waiters(connection, contended, from);
        });
        contended
    }

    async fn lease_of_new(
        &self,
        connection: &EtcdConnection,
        swap: &Swap<'_>,
        prefix: &LockPrefix,
    ) -> Result<EtcdLease, EtcdFault> {
        if let Some(queued) = self.tokens.get(swap.new) {
            return Ok(queued.lease);
        }
        let lease = self.lease(connection, whole_seconds(swap.ttl)).await?;
        let key = prefix.key(swap.new).into();
        let owner = WatchOwner { name: swap.name.into(), token: swap.new.into(), key };
        let mut queued = QueuedToken::new(owner, prefix.clone(), swap.most, lease);
        queued.is_enqueued = true;
        self.tokens.insert(queued);
        Ok(lease)
    }

    /// Returns the holders and the waiters of a lock.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn inspect(
        &self,
        connection: &EtcdConnection,
        name: &str,
    ) -> Result<Held, EtcdFault> {
        let Some(prefix) = LockPrefix::of(name) else { return Ok(Held::default()) };
        let read = TxnRequest::unconditional(vec![read_queue(&prefix)]);
        let mut queue = queue_of(&prefix, txn(connection, &read).await?.last_keys());
        let waiters = queue.split_off(holder_count(&queue));
        let leases = queue.iter().map(|entry| remaining(connection, entry.lease)).collect();
        let mut holders = Vec::new();
        for (entry, remaining) in queue.into_iter().zip(all(leases).await) {
            // A holder whose lease has ended meanwhile holds the lock no more.
            if let Some(remaining) = remaining? {
                holders.push((entry.token, remaining));
            }
        }
        holders.sort_by_key(|(_, remaining)| *remaining);
        Ok(Held { holders, waiters: waiters.into_iter().map(|entry| entry.token).collect() })
    }

    /// Returns one page of the names of locks that begin like this, and the cursor of the next page. The first cursor is
    /// empty.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn names(
        &self,
        connection: &EtcdConnection,
        beginning: &str,
        cursor: &str,
    ) -> Result<(Vec<String>, Option<String>), EtcdFault> {
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
        Ok((names, next))
    }
}

/// Returns whether the key of a token exists.
async fn exists(connection: &EtcdConnection, name: &str, token: &str) -> Result<bool, EtcdFault> {
    let Some(prefix) = LockPrefix::of(name) else { return Ok(false) };
    let read = TxnRequest::unconditional(vec![RequestOp::get(prefix.key(token))]);
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
