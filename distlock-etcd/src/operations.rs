//! What is done with a lock that a token has: it is renewed, given back, given to another token, looked at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Note, Queues, all, both, txn};
use crate::connection::Live;
use crate::fault::Fault;
use crate::grpc;
use crate::keys::Prefix;
use crate::lease::{Lease, seconds};
use crate::ordering::{Does, Under};
use crate::proto::{
    Compare, LeaseRequest, LeaseResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::queue::{Seat, let_in, line};
use crate::waiters::Place;
use crate::watch::Whose;

/// A transaction has at most 128 operations; each renewal has two.
const TOGETHER: usize = 60;

/// A lease to extend.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// The token that has it.
    pub token: &'a str,
    /// Draw a value above all that were seen.
    pub draw: bool,
}

/// A lock that is the token's still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Others wait.
    pub contended: bool,
    /// The value that was drawn.
    pub fence: Option<u64>,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// The key of the token was there.
    pub was_there: bool,
    /// Nothing of the token can take effect any more.
    pub settled: bool,
}

/// A token for another one.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// Has it alone.
    pub old: &'a str,
    /// Gets it.
    pub new: &'a str,
    /// How many may hold the lock beside it.
    pub most: u32,
    /// For how long.
    pub ttl: Duration,
}

/// The holders and waiters of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The tokens, and how long their leases still run.
    pub holders: Vec<(String, Duration)>,
    /// The tokens that wait, in order.
    pub waiters: Vec<String>,
}

impl Queues {
    /// Extends leases to the time to live that they have: one answer for each, `None` where the lock is not the
    /// token's any more.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn renew(
        &self,
        live: &Live,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Option<Renewed>>, Fault> {
        let places: Vec<_> = renewals.iter().map(|one| self.places.get(one.token)).collect();
        let leases: Vec<_> = places.iter().flatten().map(|place| place.lease).collect();
        let parts = places.chunks(TOGETHER).zip(renewals.chunks(TOGETHER));
        let looks = parts.map(|(places, renewals)| self.look(live, places, renewals)).collect();
        let (alive, looks) = both(self.keep_alive(live, &leases), all(looks)).await;
        let (mut alive, mut answers) = (alive?.into_iter(), Vec::new());
        for look in looks {
            answers.extend(look?);
        }
        let is_alive = places.iter().map(|place| place.is_some() && alive.next() == Some(true));
        let is_alive: Vec<_> = is_alive.collect();
        let judged = answers.into_iter().zip(is_alive);
        Ok(judged.map(|(answer, is_alive)| answer.filter(|_| is_alive)).collect())
    }

    /// Keeps leases alive; says of each whether it is there.
    pub(crate) async fn keep_alive(
        &self,
        live: &Live,
        leases: &[Lease],
    ) -> Result<Vec<bool>, Fault> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let with = live.channel.signature();
        let mut kept = ask_to_keep(live, leases).await;
        if live.heard(live.channel.was_refused(&kept, with).await)? {
            kept = ask_to_keep(live, leases).await;
        }
        let (kept, alive) = live.heard(kept)?;
        self.places.kept_alive(leases, alive);
        Ok(kept)
    }

    /// Whether the keys of some are there, and whether others wait.
    async fn look(
        &self,
        live: &Live,
        places: &[Option<Place>],
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<Option<Renewed>>, Fault> {
        let ops = places.iter().flatten().flat_map(|place| {
            let (start, end) = (place.prefix.start().to_vec(), place.prefix.end());
            // Whether those beside a reader wait is seen by their order.
            let others = if place.alone {
                RequestOp::count(start, end)
            } else {
                RequestOp::range(start, end)
            };
            [RequestOp::get(place.whose.key.to_vec()), others]
        });
        let look = TxnRequest::unconditional(ops.collect());
        let found = txn(live, &look).await?;
        let mut pairs = found.responses.chunks_exact(2);
        let mut answers = Vec::with_capacity(renewals.len());
        for (place, renewal) in places.iter().zip(renewals) {
            let Some(place) = place else {
                answers.push(None);
                continue;
            };
            let Some([own, others]) = pairs.next() else { return Err(Fault::unexpected()) };
            let is_own = own.keys().first().is_some_and(|own| own.create_revision == place.created);
            if !is_own {
                answers.push(None);
                continue;
            }
            let contended = match place.alone {
                true => others.count() > 1,
                false => {
                    let line = line(&place.prefix, others.keys());
                    let_in(&line) < line.len()
                }
            };
            self.places.change(renewal.token, |place| {
                place.await_loss(live, found.header.revision + 1);
                place.await_others(live, contended, found.header.revision + 1);
            });
            let fence = if renewal.draw { self.draw(live, place, renewal).await? } else { None };
            answers.push(Some(Renewed { contended, fence }));
        }
        Ok(answers)
    }

    /// A value above all that were seen: that of a write.
    async fn draw(
        &self,
        live: &Live,
        place: &Place,
        renewal: &Renewal<'_>,
    ) -> Result<Option<u64>, Fault> {
        let key = place.whose.key.to_vec();
        for _ in 0..3 {
            let base = self.base(live, renewal.fence.as_bytes()).await?;
            let touch = TxnRequest {
                compare: vec![
                    Compare::created(key.clone(), place.created),
                    Compare::has_value(renewal.fence.into(), base.text.clone()),
                ],
                success: vec![RequestOp::touch(key.clone())],
                failure: vec![RequestOp::get(renewal.fence.into())],
            };
            let seen = self.fence.revision();
            let done = txn(live, &touch).await?;
            let is_behind = self.fence.is_behind(done.header, seen);
            if !done.succeeded {
                self.fence.learn(renewal.fence.as_bytes(), done.last_keys().first())?;
            } else if is_behind || !base.is_of(done.header) {
                self.raise(live, renewal.fence.as_bytes(), Some(&base), done.header).await?;
            } else {
                return Ok(Some(self.fence.draw(&base, done.header)));
            }
        }
        Err(Fault::unsteady())
    }

    /// Has its key stay for as long as its lease runs. Says whether it is there.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn keep(&self, live: &Live, name: &str, token: &str) -> Result<bool, Fault> {
        let Some(place) = self.places.get(token) else {
            return self.is_there(live, name, token).await;
        };
        let (there, leases) = (self.is_there(live, name, token), [place.lease]);
        let (there, alive) = both(there, self.keep_alive(live, &leases)).await;
        Ok(there? && alive?.first() == Some(&true))
    }

    async fn is_there(&self, live: &Live, name: &str, token: &str) -> Result<bool, Fault> {
        let Some(prefix) = Prefix::of(name) else { return Ok(false) };
        let look = TxnRequest::unconditional(vec![RequestOp::get(prefix.key(token))]);
        Ok(!txn(live, &look).await?.last_keys().is_empty())
    }

    /// To be called at the first poll of a command that may free the lock of this name.
    pub fn frees(&self, name: &str) -> Under<'_> {
        self.sequence.begin(name, Does::Free)
    }

    /// Deletes the key of a token: it has the lock no more, and waits for it no more. With `doubt` something of
    /// it may still be under way: then its lease is revoked, and that can do nothing.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn release(
        &self,
        live: &Live,
        name: &str,
        token: &str,
        doubt: bool,
    ) -> Result<Freed, Fault> {
        let Some(prefix) = Prefix::of(name) else {
            return Ok(Freed { was_there: false, settled: true });
        };
        // From here on it is not kept alive.
        let place = self.places.leave(token);
        let delete = TxnRequest::unconditional(vec![RequestOp::delete(prefix.key(token))]);
        if let Some(mut place) = place.clone() {
            place.unwatch(live);
        }
        let deleted = txn(live, &delete).await?;
        let was_there = deleted.responses.first().is_some_and(|done: &ResponseOp| done.count() > 0);
        let Some(place) = place else { return Ok(Freed { was_there, settled: !doubt }) };
        // One that its key may have had since cannot be told from one that it has.
        let doubt = doubt || place.other.is_some();
        for lease in place.leases() {
            if doubt {
                self.revoke(live, lease).await?;
            } else {
                self.leases.give_back(lease);
            }
        }
        self.places.remove(token);
        Ok(Freed { was_there, settled: true })
    }

    async fn revoke(&self, live: &Live, lease: Lease) -> Result<(), Fault> {
        let revoked = live.channel.call::<()>(grpc::REVOKE, &LeaseRequest { id: lease.id }).await;
        match live.heard(revoked) {
            Err(fault) if !fault.lease_is_gone => Err(fault),
            _ => Ok(()),
        }
    }

    /// Gives a lock from a token that has it alone to one that does not keep others out, without a gap.
    /// `None` if it was not the old one's. May be asked any number of times.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked: either may have it.
    pub async fn exchange(
        self: &Arc<Self>,
        live: &Live,
        swap: &Swap<'_>,
        note: &dyn Note,
    ) -> Result<Option<(u64, bool)>, Fault> {
        let Some(prefix) = Prefix::of(swap.name) else { return Ok(None) };
        let fence = swap.fence.as_bytes();
        for _ in 0..3 {
            let base = self.base(live, fence).await?;
            let look = TxnRequest::unconditional(vec![range(&prefix)]);
            let line = line(&prefix, txn(live, &look).await?.last_keys());
            let mut lease = self.lease_of_new(live, swap, &prefix).await?;
            let has = |token: &str| line.iter().find(|entry| entry.token == token);
            let (test, then) = match (has(swap.old), has(swap.new)) {
                (None, None) => return Ok(None),
                (_, Some(new)) => (Compare::created(prefix.key(swap.new), new.created), Vec::new()),
                (Some(old), None) => {
                    let value = Seat::instead(swap.most, old.seat);
                    let put = RequestOp::put(prefix.key(swap.new), value, lease.id);
                    let delete = RequestOp::delete(prefix.key(swap.old));
                    (Compare::created(prefix.key(swap.old), old.created), vec![delete, put])
                }
            };
            let ask = TxnRequest {
                compare: vec![Compare::has_value(fence.to_vec(), base.text.clone()), test],
                success: then.into_iter().chain([range(&prefix)]).collect(),
                failure: vec![RequestOp::get(fence.to_vec())],
            };
            let (done, alive) = self.ask(live, &ask, &mut lease, note).await?;
            if !done.succeeded {
                self.fence.learn(fence, done.last_keys().first())?;
            } else if !base.is_of(done.header) {
                self.raise(live, fence, Some(&base), done.header).await?;
            } else if alive {
                return Ok(Some(self.exchanged(live, swap, &prefix, &done, base.at(done.header))));
            }
        }
        Err(Fault::unsteady())
    }

    /// The new one has it, by a revision that was not seen before.
    fn exchanged(
        &self,
        live: &Live,
        swap: &Swap<'_>,
        prefix: &Prefix,
        done: &TxnResponse,
        fence: u64,
    ) -> (u64, bool) {
        let line = line(prefix, done.last_keys());
        let contended = let_in(&line) < line.len();
        let created = line.iter().find(|entry| entry.token == swap.new).map(|own| own.created);
        self.places.change(swap.new, |place| {
            (place.created, place.held) = (created.unwrap_or_default(), true);
            place.await_loss(live, done.header.revision + 1);
            place.await_others(live, contended, done.header.revision + 1);
        });
        (fence, contended)
    }

    async fn lease_of_new(
        self: &Arc<Self>,
        live: &Live,
        swap: &Swap<'_>,
        prefix: &Prefix,
    ) -> Result<Lease, Fault> {
        if let Some(place) = self.places.get(swap.new) {
            return Ok(place.lease);
        }
        let lease = self.lease(live, seconds(swap.ttl)).await?;
        let key = prefix.key(swap.new).into();
        let whose = Whose { name: swap.name.into(), token: swap.new.into(), key };
        let mut place = Place::new(whose, prefix.clone(), swap.most, lease);
        place.entered = true;
        self.places.insert(place);
        Ok(lease)
    }

    /// The holders of a lock, and its waiters.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn inspect(&self, live: &Live, name: &str) -> Result<Held, Fault> {
        let Some(prefix) = Prefix::of(name) else { return Ok(Held::default()) };
        let look = TxnRequest::unconditional(vec![range(&prefix)]);
        let mut line = line(&prefix, txn(live, &look).await?.last_keys());
        let waiters = line.split_off(let_in(&line));
        let leases = line.iter().map(|entry| self.remaining(live, entry.lease)).collect();
        let mut holders = Vec::new();
        for (entry, remaining) in line.into_iter().zip(all(leases).await) {
            // One that has ended meanwhile is held no more.
            if let Some(remaining) = remaining? {
                holders.push((entry.token, remaining));
            }
        }
        holders.sort_by_key(|(_, remaining)| *remaining);
        Ok(Held { holders, waiters: waiters.into_iter().map(|entry| entry.token).collect() })
    }
}

/// Which of some leases exist, and when that was asked.
async fn ask_to_keep(live: &Live, leases: &[Lease]) -> Result<(Vec<bool>, Instant), Fault> {
    let alive = Instant::now();
    let requests: Vec<_> = leases.iter().map(|lease| LeaseRequest { id: lease.id }).collect();
    let mut answers = live.channel.ready().await?.send(grpc::KEEP_ALIVE, &requests)?;
    let mut kept = Vec::with_capacity(leases.len());
    for lease in leases {
        let answer: LeaseResponse = answers.next().await?.ok_or_else(Fault::unexpected)?;
        if answer.id != lease.id {
            return Err(Fault::unexpected());
        }
        kept.push(answer.ttl > 0);
    }
    Ok((kept, alive))
}

fn range(prefix: &Prefix) -> RequestOp {
    RequestOp::range(prefix.start().to_vec(), prefix.end())
}
