//! The functions that may give a lock: a try, an entry into the queue, and an exchange of tokens.

use std::sync::Arc;
use std::time::Duration;

use distlock_postgres::{Ask, Granted, Live, Reply, Swap};

use super::{PostgresStore, fault_of};
use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarm;
use crate::error::BackendKind;
use crate::limit::Limit;
use crate::store::owner::Owner;
use crate::store::{Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Held, Term};
use crate::token::Token;

/// How often a function is called for one token, when the sequence or the clock of the server has changed.
const TRIES: usize = 4;
/// A function must not give the lock any more this long after its caller has stopped waiting.
const NOT_AFTER: Duration = Duration::from_secs(1);
/// A token notifies the one in front after so long. Where a lock is handed on quickly, most have it before.
const ANNOUNCED_AFTER: Duration = Duration::from_millis(50);

/// Takes the lock if it is free (R2).
pub(super) async fn try_acquire(
    store: &PostgresStore,
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
    let wish = Wish { owner, limit: owner.limit, term: *term, ticket: 0, is_try: true };
    Ok(match ask(store, &wish, answer_by).await? {
        (sent, Reply::Granted(Granted { fence, .. })) => Answer::Granted { fence, sent },
        (_, Reply::Waits { remaining, .. }) => Answer::Taken { remaining },
        _ => return Err(unexpected()),
    })
}

/// Takes the lock if it is free or reserved for the owner, and enqueues the token if not (R3, R4, R11).
pub(super) async fn enter(
    store: &Arc<PostgresStore>,
    entry: &Entry,
    answer_by: Moment,
) -> Result<Entered, Fault> {
    let Entry { owner, term, ticket } = entry;
    if Token::parse(&owner.token).is_some_and(|token| token.notified) {
        // The process that lets this token in checks whether the token's process listens.
        store.ears.need(owner);
        let _ = store.by(answer_by, None, async { Ok(store.table.hear().await) }).await;
    }
    let wish = Wish { owner, limit: owner.limit, term: *term, ticket: *ticket, is_try: false };
    let entered = match ask(store, &wish, answer_by).await? {
        (sent, Reply::Granted(Granted { fence, contended })) => {
            Entered::Granted { fence, sent, contended }
        }
        (_, Reply::Waits { ticket, remaining, rank, behind, added }) => {
            if added {
                store.handle.spawn(announce(store.clone(), owner.clone()));
            }
            Entered::Queued { ticket, remaining, rank, behind, added }
        }
        _ => return Err(unexpected()),
    };
    store.contention.entered(&owner.lock, &entered);
    Ok(entered)
}

/// R4: notifies the token in front that this one waits, if it still does after a while.
async fn announce(store: Arc<PostgresStore>, owner: Arc<Owner>) {
    let now = Clock::Boottime.now();
    let after = now.after(ANNOUNCED_AFTER);
    Alarm::at(&store.alarms, Clock::Boottime, after).await;
    if owner.was_granted() || owner.is_retired() {
        return;
    }
    let answer_by = after.after(store.command_timeout);
    let Ok(live) = store.live(&owner.lock, answer_by).await else { return };
    // Where it is lost, the token in front learns of it with its grant or its next renewal.
    let _ =
        store.by(answer_by, Some(&live), live.announce(owner.lock.stored(), &owner.token)).await;
}

/// Gives the lock from one token to another.
pub(super) async fn exchange(
    store: &PostgresStore,
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
        within: store.command_timeout.saturating_add(NOT_AFTER),
    };
    Ok(match run(store, new, *term, Call::Exchange(swap), answer_by).await? {
        (sent, Reply::Granted(Granted { fence, contended })) => {
            Exchanged::Granted { fence, sent, contended }
        }
        (_, Reply::NotHeld) => Exchanged::NotHeld,
        _ => return Err(unexpected()),
    })
}

/// What a token wants.
struct Wish<'a> {
    owner: &'a Arc<Owner>,
    limit: Limit,
    term: Term,
    ticket: u64,
    is_try: bool,
}

async fn ask(
    store: &PostgresStore,
    wish: &Wish<'_>,
    answer_by: Moment,
) -> Result<(Moment, Reply), Fault> {
    let Wish { owner, limit, term, ticket, is_try } = wish;
    let token = Token::parse(&owner.token);
    let ask = Ask {
        name: owner.lock.stored(),
        token: &owner.token,
        most: limit.most(),
        ttl: term.stored_for(),
        ticket: *ticket,
        claim: token.map_or(Duration::from_secs(1), |token| token.reservation),
        told: token.is_some_and(|token| token.notified),
        is_try: *is_try,
        within: store.command_timeout.saturating_add(NOT_AFTER),
    };
    run(store, owner, *term, Call::Acquire(ask), answer_by).await
}

/// A function that may give a lock to a token.
enum Call<'a> {
    Acquire(Ask<'a>),
    Exchange(Swap<'a>),
}

impl Call<'_> {
    async fn on(&self, live: &Live) -> Result<Reply, distlock_postgres::Fault> {
        match self {
            Self::Acquire(ask) => live.acquire(ask).await,
            Self::Exchange(swap) => live.exchange(swap).await,
        }
    }

    /// Whether something of the token may stay in the database, also if it does not get the lock.
    fn may_wait(&self) -> bool {
        !matches!(self, Self::Acquire(Ask { is_try: true, .. }))
    }
}

/// Calls a function that may give the lock to this token, again if the server is another one than before or its
/// clock has changed. Says when it was sent.
async fn run(
    store: &PostgresStore,
    owner: &Arc<Owner>,
    term: Term,
    call: Call<'_>,
    answer_by: Moment,
) -> Result<(Moment, Reply), Fault> {
    for _ in 0..TRIES {
        let live = store.live(&owner.lock, answer_by).await?;
        let seen = store.table.fence().seen();
        let sent = Clock::Boottime.now();
        // R7: nothing that could create the lock is sent behind its release.
        if !owner.may_send(sent, term.stored_for(), live.number()) {
            return Err(Fault::given_up());
        }
        if call.may_wait() {
            owner.leaves_a_trace();
        }
        let reply = store.by(answer_by, Some(&live), call.on(&live)).await;
        // R9: an error of the server is an answer; the function will not run any more.
        if reply.as_ref().map_or_else(|fault| fault.answered, |_| true) {
            owner.answered(live.number());
        }
        match reply.map_err(|fault| fault_of(&fault))? {
            Reply::Late => continue,
            Reply::Moved => {}
            Reply::Granted(Granted { fence, .. }) if !store.table.fence().is_new(fence, seen) => {
                owner.leaves_a_trace();
            }
            reply => {
                if matches!(reply, Reply::Granted(_)) {
                    owner.leaves_a_trace();
                    store.ears.granted(owner);
                }
                return Ok((sent, reply));
            }
        }
        // It has other data than the one before: values are drawn above all that were seen.
        let raised = store.by(answer_by, Some(&live), live.raise()).await;
        raised.map_err(|fault| fault_of(&fault))?;
    }
    Err(Fault::passing(BackendKind::Other, "the server's clock or its sequence is unsteady"))
}

fn unexpected() -> Fault {
    Fault::passing(BackendKind::Other, "an answer to another question")
}
