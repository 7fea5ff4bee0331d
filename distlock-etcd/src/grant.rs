//! What follows when it is seen where a token stands: it has the lock, or waits to be told.

use std::time::Duration;

use crate::acquire::{Found, Granted, Reply, Turn};
use crate::fault::Fault;
use crate::fence::Base;
use crate::lease::{Lease, seconds};
use crate::proto::{Compare, RequestOp, ResponseHeader, TxnRequest};
use crate::queue::{ANY, Entry, Front, front, let_in};
use crate::waiters::Place;

/// No lock that is held shorter than this is watched.
const SHORT: Duration = Duration::from_millis(20);

impl Turn<'_> {
    /// It is its turn. `None` if that has changed again.
    pub(crate) async fn granted(
        &self,
        found: &Found,
        at: usize,
        base: &Base,
    ) -> Result<Option<Granted>, Fault> {
        let own = &found.line[at];
        let Some(place) = self.queues.places.get(self.ask.token) else { return Ok(None) };
        let is_lent = own.lease == place.lease.id && place.lease.seconds >= seconds(self.ask.ttl);
        let waited = own.created != found.header.revision;
        // Those that hold permits may see their turn in one and the same revision.
        let shares = self.ask.most != 1 && self.ask.most != ANY && waited && !place.held;
        let header = match is_lent && !shares {
            true => found.header,
            false => match self.lend(own, place.lease, base).await? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let fence = self.queues.fence.draw(base, header);
        let contended = let_in(&found.line) < found.line.len();
        self.hold(contended, found.header.revision + 1).ok_or_else(Fault::given_up)?;
        Ok(Some(Granted { fence, contended }))
    }

    /// Gives its key the lease that is wanted, and a revision of its own.
    async fn lend(
        &self,
        own: &Entry,
        has: Lease,
        base: &Base,
    ) -> Result<Option<ResponseHeader>, Fault> {
        let wanted = seconds(self.ask.ttl);
        let mut lease = match own.lease == has.id && has.seconds >= wanted {
            true => has,
            false => self.queues.lease(self.live, wanted).await?,
        };
        let (token, key) = (self.ask.token, self.prefix.key(self.ask.token));
        if lease.id != has.id {
            let note = |place: &mut Place| place.other = Some(lease);
            self.queues.places.change(token, note).ok_or_else(Fault::given_up)?;
        }
        let ask = TxnRequest {
            compare: vec![
                Compare::has_value(self.ask.fence.into(), base.text.clone()),
                Compare::created(key.clone(), own.created),
            ],
            success: vec![RequestOp::attach_lease(key, lease.id)],
            failure: Vec::new(),
        };
        let asked = self.queues.ask(self.live, &ask, &mut lease, self.note).await;
        let (done, alive) = match asked {
            Err(fault) if fault.lease_is_gone => {
                self.queues.places.change(token, |place| place.other = None);
                return Ok(None);
            }
            asked => asked?,
        };
        if !done.succeeded || !alive || !base.is_of(done.header) {
            return Ok(None);
        }
        let old = self.queues.places.change(token, |place| {
            place.other = None;
            std::mem::replace(&mut place.lease, lease)
        });
        if let Some(old) = old.filter(|old| old.id != lease.id && old.id == own.lease) {
            self.queues.leases.give_back(old);
        }
        Ok(Some(done.header))
    }

    /// It has the lock. `None` if it is about to give it back.
    fn hold(&self, contended: bool, from: i64) -> Option<()> {
        let (queues, live, token) = (self.queues, self.live, self.ask.token);
        let watched = queues.places.change(token, |place| {
            place.held = true;
            if place.entered {
                place.has_turn(live);
                place.await_loss(live, from);
                place.await_others(live, contended, from);
            }
            place.entered
        })?;
        if !watched {
            // Most locks that were free are held for a moment only, and have no waiters.
            let (queues, live, token) = (queues.clone(), live.clone(), token.to_owned());
            queues.handle.clone().spawn(async move {
                tokio::time::sleep(SHORT).await;
                queues.places.change(&token, |place| {
                    place.await_loss(&live, from);
                    place.await_others(&live, contended, from);
                });
            });
        }
        Some(())
    }

    /// It is not its turn: a message says when it may be.
    pub(crate) fn waits(&self, found: &Found, at: usize, added: bool) -> Reply {
        let Found { header, line, .. } = found;
        let (own, from) = (&line[at].seat, header.revision + 1);
        let others = line[at + 1..].iter().filter(|other| !(own.reads() && other.seat.reads()));
        let behind = others.count() as u64;
        let (key, end, count) = match front(line, at) {
            Front::Entry(front) => (self.prefix.key(&line[front].token), Vec::new(), 1),
            Front::Any(count) => (self.prefix.start().to_vec(), self.prefix.end(), count),
        };
        self.queues.places.change(self.ask.token, |place| {
            place.held = false;
            place.await_turn(self.live, &key, &end, count, from);
            place.await_others(self.live, behind > 0, from);
        });
        Reply::Waits {
            ticket: own.ticket.unsigned_abs(),
            remaining: None,
            rank: (at - let_in(line)) as u64,
            behind,
            added,
        }
    }
}
