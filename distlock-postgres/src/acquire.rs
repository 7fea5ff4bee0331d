//! The operations that may grant a lock: a try, an entry into the queue, and an exchange of tokens.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::{
    Answer, Attempt, BackendKind, Entered, Entry, Exchange, Exchanged, Fault, Held, Owner, Token,
};
use distlock_core::timers::Alarm;

use crate::commands::{GrantCall, GrantReply};
use crate::store::PostgresStore;

/// The number of calls of one function for one token, if the sequence or the clock of the server has changed.
const ATTEMPTS: usize = 4;
/// A function must not grant the lock any more this long after its caller has stopped waiting.
const NOT_AFTER: Duration = Duration::from_secs(1);
/// A waiter notifies the token before it after this time. If a lock is handed over quickly, most waiters are granted it
/// before.
const ANNOUNCE_AFTER: Duration = Duration::from_millis(50);

/// Acquires the lock if it is free (R2).
pub(crate) async fn try_acquire(
    store: &PostgresStore,
    attempt: &Attempt,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let Attempt { owner, look, .. } = attempt;
    // R2: the engine has sent this token since, and only the answer to that counts.
    if !owner.is_unsent() {
        if !look {
            return Err(Fault::given_up());
        }
        let held = store.holders(&owner.lock, answer_by).await?;
        return Ok(Held::taken_over(held.as_ref(), owner));
    }
    if store.contention.spares_a_try(attempt) {
        return Ok(Answer::Taken { remaining: None });
    }
    match grant(store, GrantCall::TryAcquire(attempt), answer_by).await? {
        Some(Entered::Granted { fence, sent, .. }) => Ok(Answer::Granted { fence, sent }),
        Some(Entered::Queued { remaining, .. }) => Ok(Answer::Taken { remaining }),
        None => Err(unexpected()),
    }
}

/// Acquires the lock if it is free or reserved for the token. Otherwise enqueues the token (R3, R4, R11).
pub(crate) async fn enter(
    store: &Arc<PostgresStore>,
    entry: &Entry,
    answer_by: Moment,
) -> Result<Entered, Fault> {
    let owner = &entry.owner;
    if Token::parse(&owner.token).is_some_and(|token| token.notified) {
        // The process that lets this token in checks whether the token's process listens.
        store.listen_demand.add(owner);
        let listens = async { Ok(store.pool.listen().await) };
        let _ = store.await_answer(answer_by, None, listens).await;
    }
    let entered = grant(store, GrantCall::Enter(entry), answer_by).await?;
    let entered = entered.ok_or_else(unexpected)?;
    if let Entered::Queued { added: true, .. } = entered {
        store.handle.spawn(announce(store.clone(), owner.clone()));
    }
    store.contention.entered(&owner.lock, &entered);
    Ok(entered)
}

/// R4: notifies the token before this one that this one waits, if it still does after a while.
async fn announce(store: Arc<PostgresStore>, owner: Arc<Owner>) {
    let after = Clock::Boottime.now().after(ANNOUNCE_AFTER);
    Alarm::at(&store.alarms, Clock::Boottime, after).await;
    if owner.was_granted() || owner.is_retired() {
        return;
    }
    let answer_by = after.after(store.command_timeout);
    let Ok(session) = store.session_for(&owner.lock, answer_by).await else { return };
    // If the message is lost, the token before learns of the waiter with its grant or its next renewal.
    let _ = store.await_answer(answer_by, Some(&session), session.announce(&owner)).await;
}

/// Gives the lock from one token to another.
pub(crate) async fn exchange(
    store: &PostgresStore,
    exchange: &Exchange,
    answer_by: Moment,
) -> Result<Exchanged, Fault> {
    match grant(store, GrantCall::Exchange(exchange), answer_by).await? {
        Some(Entered::Granted { fence, sent, contended }) => {
            Ok(Exchanged::Granted { fence, sent, contended })
        }
        Some(Entered::Queued { .. }) => Err(unexpected()),
        None => Ok(Exchanged::NotHeld),
    }
}

/// Calls a function that may grant the lock. Repeats the call if the server is another one than before, or if its
/// clock has changed. Returns `None` if the old token of an exchange does not hold the lock.
async fn grant(
    store: &PostgresStore,
    call: GrantCall<'_>,
    answer_by: Moment,
) -> Result<Option<Entered>, Fault> {
    let (owner, ttl) = (call.owner(), call.term().stored_for());
    let within = store.command_timeout.saturating_add(NOT_AFTER);
    for _ in 0..ATTEMPTS {
        let session = store.session_for(&owner.lock, answer_by).await?;
        let seen = store.pool.fences().seen();
        let sent = Clock::Boottime.now();
        // R7: nothing that could create the lock is sent after its release.
        if !owner.may_send(sent, ttl, session.number()) {
            return Err(Fault::given_up());
        }
        if call.may_leave_a_trace() {
            owner.leaves_a_trace();
        }
        let grant = session.grant(call, sent, within);
        let reply = store.await_answer(answer_by, Some(&session), grant).await;
        // R9: an error of the server is an answer. The server will not execute the function later.
        if reply.as_ref().map_or_else(|error| error.answered, |_| true) {
            owner.answered(session.number());
        }
        match reply? {
            GrantReply::Late => continue,
            GrantReply::OtherServer => {}
            GrantReply::Entered(Entered::Granted { fence, .. })
                if !store.pool.fences().is_new(fence, seen) =>
            {
                owner.leaves_a_trace();
            }
            GrantReply::Entered(entered) => {
                if let Entered::Granted { .. } = entered {
                    owner.leaves_a_trace();
                    store.listen_demand.add_granted(owner);
                }
                return Ok(Some(entered));
            }
            GrantReply::NotHeld => return Ok(None),
        }
        // This server has other data than the one before. Make it draw values above all that were seen.
        store.await_answer(answer_by, Some(&session), session.raise()).await?;
    }
    Err(Fault::passing(BackendKind::Other, "the server's clock or its sequence is unsteady"))
}

fn unexpected() -> Fault {
    Fault::passing(BackendKind::Other, "an answer to another question")
}
