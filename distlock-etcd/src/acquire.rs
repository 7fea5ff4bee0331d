//! How a token gets a lock: a try, a place in the queue and the looks at it, and an exchange of tokens.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{Note, Queues, txn};
use crate::connection::Live;
use crate::fault::Fault;
use crate::fence::Base;
use crate::keys::Prefix;
use crate::lease::{Lease, seconds};
use crate::ordering::{Does, Under};
use crate::proto::{Compare, RequestOp, ResponseHeader, TxnRequest, TxnResponse};
use crate::queue::{Entry, Seat, let_in, line};
use crate::waiters::Place;
use crate::watch::Whose;

/// How often it is asked when the base of the fencing tokens, a lease or the queue has changed meanwhile.
const TRIES: usize = 8;
/// The longest lease of a waiter: one that died holds up the others for as long. With the lock it gets the
/// lease that was asked for.
const WAITS: u64 = 10;
/// A transaction has at most 128 tests.
const TESTED: usize = 100;

/// What a token wants.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The key of the base of its fencing tokens.
    pub fence: &'a str,
    /// The token that asks for it.
    pub token: &'a str,
    /// How many may hold the lock when it is let in; `u32::MAX` for any number.
    pub most: u32,
    /// For how long.
    pub ttl: Duration,
    /// The place it had before; 0 for one at the end.
    pub ticket: u64,
    /// It takes the lock or leaves nothing.
    pub is_try: bool,
    /// If it is a try and the lock is taken: find out for how long.
    pub look: bool,
}

/// The lock is the token's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// A value above that of every holder that was alone before, and below that of every one after.
    pub fence: u64,
    /// Others wait.
    pub contended: bool,
}

/// What is answered to a token that wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It has it.
    Granted(Granted),
    /// It has not; if it is no try, it waits.
    Waits {
        /// Its place.
        ticket: u64,
        /// Until the lease of a holder ends, if that was to be found out.
        remaining: Option<Duration>,
        /// How many wait in front.
        rank: u64,
        /// How many wait behind.
        behind: u64,
        /// It did not stand there before.
        added: bool,
    },
}

/// One call, and what it knows.
pub(crate) struct Turn<'a> {
    pub(crate) queues: &'a Arc<Queues>,
    pub(crate) live: &'a Live,
    pub(crate) ask: &'a Ask<'a>,
    pub(crate) prefix: Prefix,
    pub(crate) note: &'a dyn Note,
}

/// What is sent for a token.
enum Step {
    /// Take the lock if it is free.
    Take,
    /// Stand in the line, with this value, if these tests hold.
    Join(Vec<u8>, Vec<Compare>),
    /// See where it stands.
    Look,
}

/// What is found.
pub(crate) struct Found {
    pub(crate) header: ResponseHeader,
    pub(crate) line: Vec<Entry>,
    /// It was added now.
    added: bool,
}

impl Queues {
    /// To be called at the first poll of a command that may take the lock of this name.
    pub fn takes(&self, name: &str) -> Under<'_> {
        self.sequence.begin(name, Does::Take)
    }

    /// Takes a lock that is free, or whose turn is the token's, or else has it wait. May be asked any number of
    /// times.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked: the token may have the lock, or wait for it.
    pub async fn acquire(
        self: &Arc<Self>,
        live: &Live,
        ask: &Ask<'_>,
        note: &dyn Note,
    ) -> Result<Reply, Fault> {
        let too_long =
            || Fault::refused("the key is too long: with its prefix it may have 2000 bytes");
        let prefix = Prefix::of(ask.name).ok_or_else(too_long)?;
        let turn = Turn { queues: self, live, ask, prefix, note };
        let reply = turn.run().await;
        if ask.is_try {
            turn.tried(&reply);
        }
        reply
    }
}

impl Turn<'_> {
    async fn run(&self) -> Result<Reply, Fault> {
        let (mut shared, mut added) = (false, false);
        for _ in 0..TRIES {
            let base = self.queues.base(self.live, self.ask.fence.as_bytes()).await?;
            let step = self.step(shared).await?;
            let Some(found) = self.send(step, &base).await? else { continue };
            added |= found.added;
            let own = found.line.iter().position(|entry| entry.token == self.ask.token);
            match own {
                Some(at) if at < let_in(&found.line) => {
                    if let Some(granted) = self.granted(&found, at, &base).await? {
                        return Ok(Reply::Granted(granted));
                    }
                }
                Some(at) if self.ask.is_try => return self.step_back(&found.line, at).await,
                Some(at) => return Ok(self.waits(&found, at, added)),
                // Beside others there may be room for one more.
                None if self.ask.is_try && !shared && self.fits(&found.line) => shared = true,
                None if self.ask.is_try => return self.taken(&found.line).await,
                // Its key is gone: it stands there again with the next step.
                None => drop(self.queues.places.change(self.ask.token, |place| place.created = 0)),
            }
        }
        Err(Fault::unsteady())
    }

    async fn step(&self, shared: bool) -> Result<Step, Fault> {
        let Ask { token, most, ticket, is_try, .. } = *self.ask;
        if self.queues.places.get(token).is_some_and(|place| place.created != 0) {
            return Ok(Step::Look);
        }
        if is_try && !shared {
            return Ok(Step::Take);
        }
        let absent = vec![Compare::absent(self.prefix.key(token))];
        if ticket == 0 {
            return Ok(Step::Join(Seat::last(most), absent));
        }
        // It had a place before.
        let look = TxnRequest::unconditional(vec![self.range()]);
        let found = txn(self.live, &look).await?;
        let line = line(&self.prefix, found.last_keys());
        let ticket = i64::try_from(ticket).unwrap_or(i64::MAX);
        Ok(match Seat::again(most, ticket, &line) {
            Some(value) if let_in(&line) < TESTED => {
                // Meanwhile no other token may be let in, or come back to a place in front.
                let (start, end) = (self.prefix.start().to_vec(), self.prefix.end());
                let mut tests = vec![Compare::unchanged(start, end, found.header.revision)];
                let there = line[..=let_in(&line)].iter();
                tests.extend(
                    there.map(|entry| {
                        Compare::created(self.prefix.key(&entry.token), entry.created)
                    }),
                );
                tests.extend(absent);
                Step::Join(value, tests)
            }
            _ => Step::Join(Seat::last(most), absent),
        })
    }

    /// Sends a step; `None` if it has to be looked what to do next.
    async fn send(&self, step: Step, base: &Base) -> Result<Option<Found>, Fault> {
        let (fence, key) = (self.ask.fence.as_bytes().to_vec(), self.prefix.key(self.ask.token));
        let mut lease = self.lease(&step).await?;
        let put = |value: &[u8]| RequestOp::put(key.clone(), value.to_vec(), lease.id);
        let is_base = Compare::has_value(fence.clone(), base.text.clone());
        let (tests, then) = match &step {
            Step::Take => {
                let empty = Compare::empty(self.prefix.start().to_vec(), self.prefix.end());
                (vec![empty], vec![put(&Seat::last(self.ask.most)), self.range()])
            }
            Step::Join(value, tests) => (tests.clone(), vec![put(value), self.range()]),
            Step::Look => (Vec::new(), vec![self.range()]),
        };
        let ask = TxnRequest {
            compare: [is_base].into_iter().chain(tests).collect(),
            success: then,
            failure: vec![RequestOp::get(fence), self.range()],
        };
        let seen = self.queues.fence.revision();
        let asked = self.queues.ask(self.live, &ask, &mut lease, self.note).await;
        let (done, alive) = match asked {
            Err(fault) if fault.lease_is_gone => {
                self.lost_lease(lease);
                return Ok(None);
            }
            asked => asked?,
        };
        let added = done.succeeded && !matches!(step, Step::Look);
        self.queues.places.change(self.ask.token, |place| {
            if place.lease.id == lease.id {
                place.lease = lease;
            }
            if added {
                place.created = done.header.revision;
            }
        });
        if !alive {
            self.lost_lease(lease);
            return Ok(None);
        }
        self.judge(done, seen, base, added).await
    }

    /// Whether an answer counts: not if the fencing tokens begin anew.
    async fn judge(
        &self,
        done: TxnResponse,
        seen: i64,
        base: &Base,
        added: bool,
    ) -> Result<Option<Found>, Fault> {
        let (queues, fence) = (self.queues, self.ask.fence.as_bytes());
        let is_behind = queues.fence.is_behind(done.header, seen);
        if !done.succeeded {
            let stored = done.first_keys().first();
            let stored = queues.fence.learn(fence, stored)?;
            if stored.as_ref() != Some(base) {
                return Ok(None);
            }
        }
        if is_behind || !base.is_of(done.header) {
            queues.raise(self.live, fence, Some(base), done.header).await?;
            return Ok(None);
        }
        let line = line(&self.prefix, done.last_keys());
        if let Some(own) = line.iter().find(|entry| entry.token == self.ask.token) {
            let note = |place: &mut Place| place.created = own.created;
            queues.places.change(self.ask.token, note).ok_or_else(Fault::given_up)?;
        }
        Ok(Some(Found { header: done.header, line, added }))
    }

    /// The lease of its key.
    async fn lease(&self, step: &Step) -> Result<Lease, Fault> {
        let (token, wanted) = (self.ask.token, seconds(self.ask.ttl));
        if let Some(place) = self.queues.places.get(token) {
            if !self.ask.is_try {
                self.queues.places.change(token, |place| place.entered = true);
            }
            return Ok(place.lease);
        }
        let wanted = if matches!(step, Step::Take) { wanted } else { wanted.min(WAITS) };
        let lease = self.queues.lease(self.live, wanted).await?;
        let whose = Whose {
            name: self.ask.name.into(),
            token: token.into(),
            key: self.prefix.key(token).into(),
        };
        let mut place = Place::new(whose, self.prefix.clone(), self.ask.most, lease);
        place.entered = !self.ask.is_try;
        self.queues.places.insert(place);
        // Another call may have been quicker.
        Ok(self.queues.places.get(token).map_or(lease, |place| place.lease))
    }

    /// A lease has ended: the key has another one next time.
    fn lost_lease(&self, lease: Lease) {
        let is_it = |place: &Place| place.leaving.is_none() && place.lease.id == lease.id;
        if self.queues.places.get(self.ask.token).as_ref().is_some_and(is_it) {
            self.queues.places.remove(self.ask.token);
        }
    }

    fn fits(&self, line: &[Entry]) -> bool {
        let alone = line.iter().any(|entry| entry.seat.most == 1);
        !alone && let_in(line) == line.len() && line.len() < self.ask.most as usize
    }

    /// A try that came too late beside others leaves nothing.
    async fn step_back(&self, line: &[Entry], at: usize) -> Result<Reply, Fault> {
        let entered = self.queues.places.get(self.ask.token).is_some_and(|place| place.entered);
        if !entered {
            let remove =
                TxnRequest::unconditional(vec![RequestOp::delete(self.prefix.key(self.ask.token))]);
            txn(self.live, &remove).await.map_err(|fault| Fault { answered: false, ..fault })?;
            self.queues.places.change(self.ask.token, |place| place.created = 0);
        }
        self.taken(&line[..at]).await
    }

    async fn taken(&self, line: &[Entry]) -> Result<Reply, Fault> {
        let holder = line[..let_in(line)].last().filter(|_| self.ask.look);
        let remaining = match holder {
            Some(holder) => self.queues.remaining(self.live, holder.lease).await?,
            None => None,
        };
        Ok(Reply::Waits { ticket: 0, remaining, rank: 0, behind: 0, added: false })
    }

    /// A try that has left nothing needs nothing.
    fn tried(&self, reply: &Result<Reply, Fault>) {
        let is_over = match reply {
            Ok(Reply::Granted(_)) => return,
            Ok(Reply::Waits { .. }) => true,
            Err(fault) => fault.answered,
        };
        let place = self.queues.places.get(self.ask.token);
        if let Some(place) = place.filter(|place| is_over && !place.entered && place.created == 0) {
            self.queues.places.remove(self.ask.token);
            place.leases().for_each(|lease| self.queues.leases.give_back(lease));
        }
    }

    fn range(&self) -> RequestOp {
        RequestOp::range(self.prefix.start().to_vec(), self.prefix.end())
    }
}
