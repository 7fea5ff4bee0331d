//! Waiting in the queue: one idempotent script that enqueues, takes a free lock, confirms a reserved one
//! and polls (R3, R4, R11). For a token that is not alone it is also the try without a place (R2).

use std::time::Duration;

use redis::Value;

use super::acquire::taken_over;
use super::connection::{Connection, RedisOr, ints};
use super::script::{Arg, Scripts};
use super::server::Server;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::limits::millis;
use crate::store::{Answer, Attempt, Entered, Entry, Fault};

/// How often the script is run for one entry, when the counter or the clock of the server has changed.
const TRIES: usize = 3;
/// A queue is deleted so many ms after its last poll; every waiter polls more often than that (R11).
const QUEUE_EXPIRY: u64 = 20_000;
/// A script must not run any more this long after its caller has stopped waiting for the answer.
pub(super) const NOT_AFTER: Duration = Duration::from_secs(1);

/// What becomes of a token that cannot have the lock yet.
#[derive(Clone, Copy)]
enum Otherwise {
    /// It stands in the queue.
    Wait,
    /// Nothing is left of it.
    Leave,
}

/// The queues of one server.
pub(super) struct Queue {
    acquire: Scripts,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { acquire: Scripts::acquire() }
    }

    /// Takes the lock if it is free or reserved for the owner, and enqueues the token if not.
    pub(super) async fn enter(
        &self,
        server: &Server,
        entry: &Entry,
        answer_by: Moment,
    ) -> Result<Entered, Fault> {
        self.run(server, entry, Otherwise::Wait, answer_by).await
    }

    /// Takes the lock beside its other holders, if there is room and no waiter in the queue.
    pub(super) async fn try_share(
        &self,
        server: &Server,
        attempt: &Attempt,
        answer_by: Moment,
    ) -> Result<Answer, Fault> {
        let Attempt { owner, term, .. } = attempt;
        // R2: the engine has sent this token since, and only the answer to that counts.
        if !owner.is_unsent() {
            let mut live = server.pool.commands(owner.lock.stored()).live(answer_by).await?;
            return taken_over(attempt, &mut live, answer_by).await;
        }
        let entry = Entry { owner: owner.clone(), term: *term, ticket: 0 };
        Ok(match self.run(server, &entry, Otherwise::Leave, answer_by).await? {
            Entered::Granted { fence, sent, .. } => Answer::Granted { fence, sent },
            Entered::Queued { remaining, .. } => Answer::Taken { remaining },
        })
    }

    async fn run(
        &self,
        server: &Server,
        entry: &Entry,
        otherwise: Otherwise,
        answer_by: Moment,
    ) -> Result<Entered, Fault> {
        let Entry { owner, term, .. } = entry;
        let fences = &server.fences;
        let mut live = server.pool.commands(owner.lock.stored()).live(answer_by).await?;
        let other = fences.of_other_prefix(&owner.lock);
        server.keep_subscribed(&owner.lock, term.stored_for());
        let counter = other.as_deref().unwrap_or(&fences.own);
        for _ in 0..TRIES {
            if !fences.is_raised(counter, &live) {
                fences.raise(counter, Some(&owner.lock), &mut live, answer_by).await?;
            }
            let seen = counter.seen();
            let (sent, answer) = self.ask(server, entry, otherwise, &mut live, answer_by).await?;
            server.record.used(sent);
            match ints(&answer) {
                [Some(1), _, Some(fence), Some(behind), ..] => {
                    let fence = u64::try_from(fence).unwrap_or(0);
                    if fences.is_new(counter, fence, seen)? {
                        return Ok(Entered::Granted { fence, sent, contended: behind != 0 });
                    }
                    // Data was lost under a live connection: raise the counter and draw again.
                    fences.set_raised(counter, &live, false);
                }
                [
                    Some(0),
                    _,
                    Some(ticket),
                    Some(remaining),
                    Some(rank),
                    Some(behind),
                    Some(added),
                ] => {
                    let number = |number| u64::try_from(number).unwrap_or(0);
                    // With a ticket from a spoilt counter it would stay behind all others, even
                    // when the counter is mended.
                    fences.check(number(ticket))?;
                    return Ok(Entered::Queued {
                        ticket: number(ticket),
                        remaining: u64::try_from(remaining).ok().map(Duration::from_millis),
                        rank: number(rank),
                        behind: number(behind),
                        added: added != 0,
                    });
                }
                // Too late by the server's clock, which may have been set: ask again with its time.
                [Some(3), _, Some(now), ..] => fences.server_clock.set(now),
                _ => return Err(live.desynchronized()),
            }
        }
        Err(Fault::passing(BackendKind::Other, "the server's clock or its counters are unsteady"))
    }

    /// Runs the script once. Returns when it was sent, and its answer.
    async fn ask(
        &self,
        server: &Server,
        entry: &Entry,
        otherwise: Otherwise,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<(Moment, Vec<Value>), Fault> {
        let Entry { owner, term, ticket } = entry;
        // R7: nothing that could create the lock is sent behind its release.
        if owner.is_retired() {
            return Err(Fault::given_up());
        }
        let counter = owner.lock.fence().unwrap_or(&server.fences.own.key);
        let keys = [Arg::Text(owner.lock.stored()), Arg::Queue(&owner.lock), Arg::Text(counter)];
        let lifetime = server.command_timeout.saturating_add(NOT_AFTER);
        let args = [
            Arg::Text(&owner.token),
            Arg::Number(millis(term.stored_for())),
            Arg::Number(*ticket),
            Arg::Number(QUEUE_EXPIRY),
            Arg::Number(server.fences.server_clock.time_after(lifetime)),
            Arg::Number(1),
        ];
        let is_try = matches!(otherwise, Otherwise::Leave);
        let args = &args[..5 + usize::from(is_try)];
        let sent = Clock::Boottime.now();
        owner.sending(sent, term.stored_for(), live.number);
        if !is_try {
            owner.leaves_a_trace();
        }
        let given_up = || owner.is_retired();
        let script = self.acquire.of(owner.limit);
        let answer = live.run_unless(given_up, script, &keys, args, answer_by).await;
        // R9: an error of the script is an answer; the script will not run any more.
        if let Err(RedisOr::Redis(error)) = &answer
            && error.code().is_some()
        {
            owner.answered(live.number);
        }
        let answer = answer.map_err(RedisOr::into_fault)?;
        let Value::Array(answer) = answer else { return Err(live.desynchronized()) };
        // R3: an answer that carries another token drops the connection.
        match answer.get(1) {
            Some(Value::BulkString(token)) if *token == owner.token.as_bytes() => {}
            _ => return Err(live.desynchronized()),
        }
        owner.answered(live.number);
        if matches!(answer.first(), Some(Value::Int(1))) {
            owner.leaves_a_trace();
        }
        Ok((sent, answer))
    }
}
