//! Asks replicas to confirm the writes on a connection.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use distlock_core::clock::Moment;
use distlock_core::store::Fault;
use redis::{Pipeline, Value};

use crate::connection::live::{ConnectionHandle, RedisOr};
use crate::connection::replicas::{Replicas, TicketStatus, WaitSender};

/// Waits until replicas have confirmed everything that was written on this connection before. `ticket` is the write's
/// own ticket, if it has one.
///
/// Cancel safe: if the caller that asks for several is dropped, another one asks.
pub(crate) async fn confirm(
    replicas: Replicas,
    connection: &mut ConnectionHandle,
    ticket: Option<u64>,
    answer_by: Moment,
) -> Result<(), Fault> {
    let waits = connection.live.waits.clone();
    let ticket = ticket.unwrap_or_else(|| waits.ticket());
    loop {
        let changed = waits.changed();
        match waits.status(ticket, replicas) {
            TicketStatus::Confirmed => return Ok(()),
            TicketStatus::Refused(answer) => return replicas.check(&answer),
            TicketStatus::Ask(asker) => ask(asker, connection, answer_by).await?,
            TicketStatus::Wait => {
                connection.live.within(changed, answer_by).await.ok_or_else(Fault::timed_out)?
            }
        }
    }
}

/// Sends an attempt, and asks for all that were sent by then if it is the first of them. Returns its replies and its
/// ticket.
///
/// The replicas are asked right after the attempt and not after its reply. Otherwise the server would have nothing to
/// do meanwhile.
pub(crate) async fn with_others(
    replicas: Replicas,
    connection: &mut ConnectionHandle,
    pipeline: &Pipeline,
    sent: Moment,
    answer_by: Moment,
) -> Result<(Vec<Value>, u64), Fault> {
    let shared = connection.live.clone();
    let mut call = pin!(connection.pipeline(pipeline, sent, answer_by));
    let mut answers = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
    // Only after the attempt was sent: an earlier `WAIT` does not cover it.
    let (ticket, asker) = shared.waits.sent(replicas);
    // If that gets no reply, another caller asks.
    let mut asking = asker.map(|asker| {
        Box::pin(async move { ask(asker, &mut ConnectionHandle::to(&shared), answer_by).await })
    });
    let answers = poll_fn(|cx| {
        if answers.is_pending() {
            answers = call.as_mut().poll(cx);
        }
        if asking.as_mut().is_some_and(|asking| asking.as_mut().poll(cx).is_ready()) {
            asking = None;
        }
        match &answers {
            // The lock was granted.
            Poll::Ready(Ok(all)) if asking.is_some() && all.contains(&Value::Okay) => Poll::Pending,
            _ => std::mem::replace(&mut answers, Poll::Pending),
        }
    });
    Ok((answers.await?, ticket))
}

/// Sends a `WAIT` for all tickets that exist, once no other caller's is in flight.
async fn ask(
    mut asker: WaitSender,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<(), Fault> {
    // Lets other ready tasks send their attempts first.
    tokio::task::yield_now().await;
    loop {
        let changed = connection.live.waits.changed();
        if asker.begin() {
            break;
        }
        connection.live.within(changed, answer_by).await.ok_or_else(Fault::timed_out)?;
    }
    let answer = connection.command(&asker.replicas.wait(), answer_by).await;
    asker.answered(answer.map_err(RedisOr::into_fault)?);
    Ok(())
}
