//! The commands that may give a lock: a try, an entry into the queue, and an exchange of tokens.

use std::future::Future;

use distlock_zookeeper::{Ask, Granted, Reply, Swap};

use super::ZooKeeperStore;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::store::owner::Owner;
use crate::store::{Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Term};

/// All that is sent for a token goes over one session after the other, each of which ends all that was sent
/// before: to an owner they are one connection.
const SESSION: u64 = 1;

/// Takes the lock if it is free (R2).
pub(super) async fn try_acquire(
    store: &ZooKeeperStore,
    attempt: &Attempt,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let Attempt { owner, term, look } = attempt;
    // R2: the engine has sent this token since, and only the answer to that counts.
    if !owner.is_unsent() {
        return taken_over(store, owner, *look, answer_by).await;
    }
    if store.contention.spares_a_try(attempt) {
        return Ok(Answer::Taken { remaining: None });
    }
    let ask = ask(owner, *term, 0, true);
    Ok(match run(store, owner, *term, store.ensemble.acquire(&ask), answer_by).await? {
        (sent, Reply::Granted(Granted { fence, .. })) => Answer::Granted { fence, sent },
        (_, Reply::Waits { .. }) => Answer::Taken { remaining: None },
        _ => return Err(Fault::given_up()),
    })
}

/// What a try comes to whose token the engine has sent. Its line has the fencing token.
async fn taken_over(
    store: &ZooKeeperStore,
    owner: &Owner,
    look: bool,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    if !look {
        return Err(Fault::given_up());
    }
    let Some(held) = store.look(&owner.lock, answer_by).await? else {
        return Ok(Answer::Taken { remaining: None });
    };
    let is_own = held.tokens().any(|token| *token == owner.token);
    Ok(match is_own {
        true => Answer::Granted { fence: 0, sent: owner.first_sent() },
        false => Answer::Taken { remaining: None },
    })
}

/// Takes the lock if it is free and the owner is the first in line, and enqueues the token if not (R3, R4, R11).
pub(super) async fn enter(
    store: &ZooKeeperStore,
    entry: &Entry,
    answer_by: Moment,
) -> Result<Entered, Fault> {
    let Entry { owner, term, ticket } = entry;
    let ask = ask(owner, *term, *ticket, false);
    let entered = match run(store, owner, *term, store.ensemble.acquire(&ask), answer_by).await? {
        (sent, Reply::Granted(Granted { fence, contended })) => {
            Entered::Granted { fence, sent, contended }
        }
        // No time remaining: only the servers know when a session ends, and they notify the next waiter.
        (_, Reply::Waits { ticket, rank, behind, added }) => {
            Entered::Queued { ticket, remaining: None, rank, behind, added }
        }
        _ => return Err(Fault::given_up()),
    };
    store.contention.entered(&owner.lock, &entered);
    Ok(entered)
}

/// Gives the lock from one token to another.
pub(super) async fn exchange(
    store: &ZooKeeperStore,
    exchange: &Exchange,
    answer_by: Moment,
) -> Result<Exchanged, Fault> {
    let Exchange { old, new, term } = exchange;
    let swap = Swap {
        name: new.lock.stored(),
        old: &old.token,
        new: &new.token,
        most: new.limit.most(),
        ttl: term.stored_for(),
    };
    Ok(match run(store, new, *term, store.ensemble.exchange(&swap), answer_by).await? {
        (sent, Reply::Granted(Granted { fence, contended })) => {
            Exchanged::Granted { fence, sent, contended }
        }
        (_, Reply::NotHeld) => Exchanged::NotHeld,
        _ => return Err(Fault::passing(BackendKind::Other, "an answer to another question")),
    })
}

fn ask(owner: &Owner, term: Term, ticket: u64, is_try: bool) -> Ask<'_> {
    Ask {
        name: owner.lock.stored(),
        token: &owner.token,
        most: owner.limit.most(),
        ttl: term.stored_for(),
        ticket,
        is_try,
    }
}

/// Has a command run that may give the lock to this token. Says from when on it counts.
async fn run(
    store: &ZooKeeperStore,
    owner: &Owner,
    term: Term,
    command: impl Future<Output = Result<Reply, distlock_zookeeper::Fault>>,
    answer_by: Moment,
) -> Result<(Moment, Reply), Fault> {
    // What it takes to make a session is no part of the lease.
    store.by(answer_by, store.ensemble.ready(term.stored_for())).await?;
    let sent = Clock::Boottime.now();
    // R7: nothing that could create the lock is sent behind its release.
    if !owner.may_send(sent, term.stored_for(), SESSION) {
        return Err(Fault::given_up());
    }
    owner.leaves_a_trace();
    let reply = store.by(answer_by, command).await?;
    owner.answered(SESSION);
    Ok((sent, reply))
}
