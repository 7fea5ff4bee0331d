//! The fast path (R2): one attempt to acquire a lock that may be free, without Lua and without a place in the queue.
//!
//! `SET lock token NX PX ttl` and `INCR fence` are sent in one write. A command that raises the counter precedes them
//! if that is due. Now and then an `ECHO` follows, which shows that the replies belong to this attempt.

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{Answer, Attempt, Fault};
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::commands::fence::Fence;
use crate::commands::inspect::{taken, taken_over};
use crate::commands::queue::Queue;
use crate::commands::renew::Renewals;
use crate::commands::server::Server;
use crate::commands::{confirm, first_contact};
use crate::connection::error::fault;
use crate::connection::live::{ConnectionHandle, LiveConnection, integer};
use crate::connection::replicas::WaitSender;
use crate::connection::reply_check::{Marking, echo};

/// The replies to the fast path.
struct FastReply {
    granted: bool,
    /// The value of the fence counter that was drawn for this attempt.
    fence: u64,
    sent: Moment,
    /// The highest counter value that was known when the attempt was sent.
    seen: u64,
    /// Whether the counter was raised with this attempt, or a moment before.
    raised: bool,
    /// The ticket under which replicas were asked in the same write.
    ticket: Option<u64>,
}

/// Acquires the lock if it is free.
///
/// Rare cases are on the heap: they would make the future of every acquire larger, which is moved to the heap each
/// time.
pub(crate) async fn try_acquire(
    server: &Server,
    (queue, renewals): (&Queue, &Renewals),
    attempt: &Attempt,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let owner = &*attempt.owner;
    let fences = &server.fences;
    let counter = fences.of(&owner.lock);
    if counter.is_of_other_prefix() {
        server.keep_subscribed(&owner.lock, attempt.term.stored_for());
    }
    let counter = &*counter;
    if fences.wants_script(counter, connection) {
        return Box::pin(queue.try_share(server, attempt, connection, answer_by)).await;
    }
    // Before the first grant on a connection, because the server may have lost its data.
    if !fences.is_raised(counter, &connection.live) {
        Box::pin(first_contact::run(server, &owner.lock, connection, answer_by)).await?;
        let lock = Some(&*owner.lock);
        Box::pin(fences.raise(counter, lock, connection, answer_by)).await?;
    }
    // R2: the engine has sent this token meanwhile, and only the reply to that counts. A later `SET` could acquire the
    // lock again after it was taken away, with an older counter value than the next owner's.
    if !owner.is_unsent() {
        return Box::pin(taken_over(attempt, connection, answer_by)).await;
    }
    let FastReply { granted, fence, sent, seen, raised, ticket } =
        fast_path(server, attempt, counter, connection, answer_by).await?;
    let mut sent = sent;
    if !granted && !attempt.look {
        return Ok(Answer::Taken { remaining: None });
    }
    if !granted {
        // `SET NX` refuses whatever the key holds. The value tells a lock from other data, which is not worth waiting
        // for, and from our own token, which an acquire finds if it was delivered twice.
        match Box::pin(taken(owner, connection, answer_by)).await? {
            None => sent = owner.first_sent(),
            Some(answer) => return Ok(answer),
        }
    }
    if raised && fences.is_new(counter, fence, seen)? {
        if server.replicas.is_some() {
            server.confirm(connection, ticket, answer_by).await?;
        }
        return Ok(Answer::Granted { fence, sent });
    }
    // R2: data was lost while the connection was up.
    fences.set_raised(counter, &connection.live, false);
    match Box::pin(renewals.draw_again(fences, attempt, counter, connection, answer_by)).await? {
        Some(fence) => {
            server.confirm(connection, None, answer_by).await?;
            Ok(Answer::Granted { fence, sent })
        }
        None => Ok(Answer::Taken { remaining: None }),
    }
}

/// Sends `SET NX` and `INCR` in one write, whose replies arrive together.
async fn fast_path(
    server: &Server,
    attempt: &Attempt,
    counter: &Fence,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<FastReply, Fault> {
    let owner = &*attempt.owner;
    let mut pipeline = Pipeline::with_capacity(3);
    let seen = counter.seen();
    // I1: the deadline counts from before the send. If it counted from a slow reply, the lease would last longer here
    // than at the server.
    let sent = Clock::Boottime.now();
    let raises = counter.is_stale(sent);
    if raises {
        pipeline.add_command(server.fences.raise_command(counter, seen));
    }
    pipeline.add_command(set(attempt)).add_command(incr(counter));
    // R3: recognizes the replies. If one reply is lost, every later caller gets the reply to another command.
    let marking = connection.live.marking(sent);
    if marking == Marking::Echo {
        pipeline.add_command(echo(owner.mark()));
    }
    let waits = |replicas| connection.live.waits.ask_with(replicas, &mut pipeline);
    let asker = server.replicas.and_then(waits);
    server.record.used(sent);
    // R7: nothing that could create the lock is sent after its release.
    if !owner.may_send(sent, attempt.term.stored_for(), connection.live.number) {
        return Err(Fault::given_up());
    }
    let (mut answers, shared) = match server.replicas.filter(|_| asker.is_none()) {
        None => (connection.pipeline(&pipeline, sent, answer_by).await?, None),
        // On the heap, so that acquires without replicas do not pay for it.
        Some(replicas) => {
            let with_others =
                confirm::with_others(replicas, connection, &pipeline, sent, answer_by);
            let (answers, ticket) = Box::pin(with_others).await?;
            (answers, Some(ticket))
        }
    };
    if let Marking::Alone { before } = marking {
        connection.check_alone(before, owner.mark(), &answers, answer_by).await?;
    }
    let confirmed = |asker: WaitSender| asker.answered(answers.pop().unwrap_or(Value::Nil));
    let ticket = asker.map_or(shared, confirmed);
    let (raise, mut answers) = answers.split_at(usize::from(raises).min(answers.len()));
    if marking == Marking::Echo {
        answers = connection.live.replies_of((owner.mark(), sent), answers)?;
    }
    let granted = is_granted(owner, answers, &connection.live)?;
    let raised = is_raised(server, counter, (seen, sent), raise, &connection.live)?;
    let fence = integer(&answers[1]).inspect_err(|_| connection.live.check_answer(&answers[1]))?;
    let fence = u64::try_from(fence).unwrap_or(0);
    Ok(FastReply { granted, fence, sent, seen, raised, ticket })
}

/// Whether the two replies to `SET` and `INCR` grant the lock.
#[inline]
fn is_granted(owner: &Owner, replies: &[Value], live: &LiveConnection) -> Result<bool, Fault> {
    match replies {
        [Value::Okay, _] => {
            owner.answered_yes(live.number);
            Ok(true)
        }
        [Value::Nil, _] => {
            owner.answered(live.number);
            Ok(false)
        }
        [Value::ServerError(error), _] => {
            owner.answered(live.number);
            let error = RedisError::from(error.clone());
            live.check_error(&error);
            Err(fault(&error))
        }
        _ => Err(live.unexpected_answer()),
    }
}

/// Whether the command that precedes the attempt has raised the counter, if there was one.
#[inline]
fn is_raised(
    server: &Server,
    counter: &Fence,
    (seen, sent): (u64, Moment),
    raise: &[Value],
    live: &LiveConnection,
) -> Result<bool, Fault> {
    match raise {
        // It may be another server than before, without the script.
        [Value::ServerError(_)] => Ok(false),
        [raised] => server.fences.raised(counter, seen, sent, raised, live).map(|()| true),
        _ => Ok(true),
    }
}

/// Returns the command that acquires the lock.
#[inline]
pub(crate) fn set(attempt: &Attempt) -> Cmd {
    let (lock, token) = (attempt.owner.lock.stored(), &attempt.owner.token);
    let mut set = Cmd::with_capacity(6, lock.len() + token.len() + 32);
    let ttl = millis(attempt.term.stored_for());
    set.arg("SET").arg(&**lock).arg(token).arg("NX").arg("PX").arg(ttl);
    set
}

/// Returns the command that draws a value from the counter.
#[inline]
fn incr(counter: &Fence) -> Cmd {
    let mut incr = Cmd::with_capacity(2, counter.key.len() + 4);
    incr.arg("INCR").arg(&*counter.key);
    incr
}
