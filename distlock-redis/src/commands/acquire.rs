//! The fast path (R2): one try at a lock that may be free, without Lua and without a place in the queue.
//!
//! `SET lock token NX PX ttl` and `INCR fence` go out in one write, behind a raise of the counter where
//! that is due, and before an `ECHO` now and then, which shows whose answers these are.

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::{Answer, Attempt, Fault};
use redis::{Cmd, Pipeline, RedisError, ServerError, Value};

use crate::commands::fence::Fence;
use crate::commands::inspect::{taken, taken_over};
use crate::commands::queue::Queue;
use crate::commands::renew::Renewals;
use crate::commands::server::Server;
use crate::commands::{confirm, first_contact};
use crate::connection::connection::{Connection, Live, integer};
use crate::connection::error::fault;
use crate::connection::marks::Marking;
use crate::connection::replicas::Asker;
use crate::connection::reply_check::{echo, of_alone, of_mark};

/// Takes the lock if it is free.
///
/// What is rare is on the heap: it would make the future of every acquire larger, which is moved
/// to the heap for each.
pub(crate) async fn try_acquire(
    server: &Server,
    (queue, renewals): (&Queue, &Renewals),
    attempt: &Attempt,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let owner = &*attempt.owner;
    let fences = &server.fences;
    let counter = &*fences.of(&owner.lock);
    server.keep_subscribed(&owner.lock, attempt.term.stored_for());
    if fences.wants_script(counter, live) {
        return Box::pin(queue.try_share(server, attempt, live, answer_by)).await;
    }
    // Before the first grant on a connection: the server behind it may have lost its data.
    if !fences.is_raised(counter, live) {
        Box::pin(first_contact::run(server, &owner.lock, live, answer_by)).await?;
        let lock = Some(&*owner.lock);
        Box::pin(fences.raise(counter, lock, live, answer_by)).await?;
    }
    // R2: the engine has sent this token since, and only the answer to that counts. Behind it, a `SET`
    // could take the lock again after it was taken away, on an older counter value than the next owner's.
    if !owner.is_unsent() {
        return Box::pin(taken_over(attempt, live, answer_by)).await;
    }
    let Fast { granted, fence, sent, seen, raised, ticket } =
        fast_path(server, attempt, counter, live, answer_by).await?;
    let mut sent = sent;
    if !granted && !attempt.look {
        return Ok(Answer::Taken { remaining: None });
    }
    if !granted {
        // `SET NX` says no to whatever is there. The value tells a lock from something else, which
        // is not worth waiting for, and from our own: an acquire that was delivered twice finds
        // its own token.
        match Box::pin(taken(owner, live, answer_by)).await? {
            None => sent = owner.first_sent(),
            Some(answer) => return Ok(answer),
        }
    }
    if raised && fences.is_new(counter, fence, seen)? {
        server.confirm(live, ticket, answer_by).await?;
        return Ok(Answer::Granted { fence, sent });
    }
    // R2: data was lost under a live connection.
    fences.set_raised(counter, live, false);
    match Box::pin(renewals.draw_again(fences, attempt, counter, live, answer_by)).await? {
        Some(fence) => {
            server.confirm(live, None, answer_by).await?;
            Ok(Answer::Granted { fence, sent })
        }
        None => Ok(Answer::Taken { remaining: None }),
    }
}

/// What the fast path was answered.
struct Fast {
    granted: bool,
    /// The counter of fencing tokens, drawn for this try.
    fence: u64,
    sent: Moment,
    /// The highest counter that was known when it was sent.
    seen: u64,
    /// The counter was raised with it, or a moment before.
    raised: bool,
    /// Under which replicas were asked in the same write.
    ticket: Option<u64>,
}

/// `SET NX` and the fence in one write, whose answers come together.
async fn fast_path(
    server: &Server,
    attempt: &Attempt,
    counter: &Fence,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Fast, Fault> {
    let owner = &*attempt.owner;
    let mut pipeline = Pipeline::with_capacity(3);
    let seen = counter.seen();
    // I1: the deadline counts from before the send. Counted from a slow answer, the lease would be
    // longer here than at the server.
    let sent = Clock::Boottime.now();
    let raises = counter.is_stale(sent);
    if raises {
        pipeline.add_command(server.fences.raise_command(counter, seen));
    }
    pipeline.add_command(set(attempt)).add_command(incr(counter));
    // R3: says whose answers these are. Where one is lost, every later caller gets another's.
    let marking = live.marking(sent);
    if marking == Marking::Echo {
        pipeline.add_command(echo(owner.mark()));
    }
    let waits = |replicas| live.waits.ask_with(replicas, &mut pipeline);
    let asker = server.replicas.and_then(waits);
    server.record.used(sent);
    // R7: nothing that could create the lock is sent behind its release.
    if !owner.may_send(sent, attempt.term.stored_for(), live.number) {
        return Err(Fault::given_up());
    }
    let together = server.replicas.filter(|_| asker.is_none());
    let answers = confirm::send(together, live, &pipeline, sent, answer_by);
    let (mut answers, shared) = answers.await?;
    if let Marking::Alone { before } = marking {
        of_alone(before, owner.mark(), &answers, live, answer_by).await?;
    }
    let confirmed = |asker: Asker| asker.answered(answers.pop().unwrap_or(Value::Nil));
    let ticket = asker.map_or(shared, confirmed);
    let (raise, mut answers) = answers.split_at(usize::from(raises).min(answers.len()));
    if marking == Marking::Echo {
        answers = of_mark((owner.mark(), sent), answers, live)?;
    }
    match answers {
        [answer @ (Value::Okay | Value::Nil), fence] => {
            match answer {
                Value::Okay => owner.answered_yes(live.number),
                _ => owner.answered(live.number),
            }
            let raised = is_raised(server, counter, (seen, sent), raise, live)?;
            let fence = integer(fence).inspect_err(|_| live.check_answer(&answers[1]))?;
            let fence = u64::try_from(fence).unwrap_or(0);
            Ok(Fast { granted: *answer == Value::Okay, fence, sent, seen, raised, ticket })
        }
        [Value::ServerError(error), _] => {
            owner.answered(live.number);
            Err(refused(error, live))
        }
        _ => Err(live.unexpected_answer()),
    }
}

/// What the raise in front was answered, if there was one.
#[inline]
fn is_raised(
    server: &Server,
    counter: &Fence,
    (seen, sent): (u64, Moment),
    raise: &[Value],
    live: &Live,
) -> Result<bool, Fault> {
    match raise {
        // Perhaps another server than before, which does not have the script.
        [Value::ServerError(_)] => Ok(false),
        [raised] => server.fences.raised(counter, seen, sent, raised, live).map(|()| true),
        _ => Ok(true),
    }
}

fn refused(error: &ServerError, live: &Live) -> Fault {
    let error = RedisError::from(error.clone());
    live.check_error(&error);
    fault(&error)
}

/// What takes the lock.
#[inline]
pub(crate) fn set(attempt: &Attempt) -> Cmd {
    let (lock, token) = (attempt.owner.lock.stored(), &attempt.owner.token);
    let mut set = Cmd::with_capacity(6, lock.len() + token.len() + 32);
    let ttl = millis(attempt.term.stored_for());
    set.arg("SET").arg(&**lock).arg(token).arg("NX").arg("PX").arg(ttl);
    set
}

/// What draws a value from the counter.
#[inline]
fn incr(counter: &Fence) -> Cmd {
    let mut incr = Cmd::with_capacity(2, counter.key.len() + 4);
    incr.arg("INCR").arg(&*counter.key);
    incr
}
