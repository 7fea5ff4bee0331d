//! The commands that may give a lock: a try, an entry into the queue, and an exchange of tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_etcd::{Ask, Granted, Note, Reply, Swap};

use super::EtcdStore;
use crate::clock::{Clock, Moment};
use crate::store::owner::Owner;
use crate::store::{Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Held, Term};

/// Takes the lock if it is free (R2).
pub(super) async fn try_acquire(
    store: &EtcdStore,
    attempt: &Attempt,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let Attempt { owner, term, look } = attempt;
    // R2: the engine has sent this token since, and only the answer to that counts.
    if !owner.is_unsent() {
        if !look {
            return Err(Fault::given_up());
        }
        let held = store.look(&owner.lock, answer_by).await?;
        return Ok(Held::taken_over(held.as_ref(), owner));
    }
    if store.contention.spares_a_try(attempt) {
        return Ok(Answer::Taken { remaining: None });
    }
    let ask = Ask { is_try: true, look: *look, ..ask(store, owner, *term, 0) };
    Ok(match acquire(store, owner, &ask, answer_by).await? {
        (sent, Reply::Granted(Granted { fence, .. })) => Answer::Granted { fence, sent },
        (_, Reply::Waits { remaining, .. }) => Answer::Taken { remaining },
    })
}

/// Takes the lock if it is the owner's turn, and enqueues the token if not (R3, R4, R11).
pub(super) async fn enter(
    store: &EtcdStore,
    entry: &Entry,
    answer_by: Moment,
) -> Result<Entered, Fault> {
    let Entry { owner, term, ticket } = entry;
    let ask = ask(store, owner, *term, *ticket);
    let entered = match acquire(store, owner, &ask, answer_by).await? {
        (sent, Reply::Granted(Granted { fence, contended })) => {
            Entered::Granted { fence, sent, contended }
        }
        (_, Reply::Waits { ticket, remaining, rank, behind, added }) => {
            Entered::Queued { ticket, remaining, rank, behind, added }
        }
    };
    store.contention.entered(&owner.lock, &entered);
    Ok(entered)
}

/// Gives the lock from one token to another.
pub(super) async fn exchange(
    store: &EtcdStore,
    exchange: &Exchange,
    answer_by: Moment,
) -> Result<Exchanged, Fault> {
    let Exchange { old, new, term } = exchange;
    let swap = Swap {
        name: new.lock.stored(),
        fence: store.fence(&new.lock),
        old: &old.token,
        new: &new.token,
        most: new.limit.most(),
        ttl: term.stored_for(),
    };
    let mut under = store.queues.takes(swap.name);
    store.after_others(&mut under).await;
    let live = store.live(answer_by).await?;
    let sending = Sending::new(new, live.number(), true);
    let exchange = store.queues.exchange(&live, &swap, &sending);
    Ok(match store.by(answer_by, Some(&live), exchange).await? {
        Some((fence, contended)) => Exchanged::Granted { fence, sent: sending.sent(), contended },
        None => Exchanged::NotHeld,
    })
}

fn ask<'a>(store: &'a EtcdStore, owner: &'a Owner, term: Term, ticket: u64) -> Ask<'a> {
    Ask {
        name: owner.lock.stored(),
        fence: store.fence(&owner.lock),
        token: &owner.token,
        most: owner.limit.most(),
        ttl: term.stored_for(),
        ticket,
        is_try: false,
        look: false,
    }
}

/// Asks, and says when the command was sent that was answered.
async fn acquire(
    store: &EtcdStore,
    owner: &Owner,
    ask: &Ask<'_>,
    answer_by: Moment,
) -> Result<(Moment, Reply), Fault> {
    let mut under = store.queues.takes(ask.name);
    store.after_others(&mut under).await;
    let live = store.live(answer_by).await?;
    let sending = Sending::new(owner, live.number(), !ask.is_try);
    let reply = store.queues.acquire(&live, ask, &sending);
    let reply = store.by(answer_by, Some(&live), reply).await?;
    Ok((sending.sent(), reply))
}

/// Notes with its owner what is sent for a token.
struct Sending<'a> {
    owner: &'a Owner,
    connection: u64,
    /// Something of it may stay, also if it does not get the lock.
    may_wait: bool,
    sent: AtomicU64,
}

impl<'a> Sending<'a> {
    fn new(owner: &'a Owner, connection: u64, may_wait: bool) -> Self {
        Self { owner, connection, may_wait, sent: AtomicU64::new(0) }
    }

    /// When the last command was sent.
    fn sent(&self) -> Moment {
        Moment::from_nanos(self.sent.load(Ordering::Acquire))
    }
}

impl Note for Sending<'_> {
    fn sending(&self, keeps: Duration) -> bool {
        let now = Clock::Boottime.now();
        // R7: nothing that could create the lock is sent behind its release.
        if !self.owner.may_send(now, keeps, self.connection) {
            return false;
        }
        if self.may_wait {
            self.owner.leaves_a_trace();
        }
        self.sent.store(now.as_nanos(), Ordering::Release);
        true
    }

    fn answered(&self) {
        self.owner.answered(self.connection);
    }

    fn leaves_a_trace(&self) {
        self.owner.leaves_a_trace();
    }
}
