//! Release: one idempotent script that frees and hands on, leaves the queue (R8), compensates for an
//! acquire without an answer (R9), and repairs a lock that expired with others waiting.
//!
//! # A slot of a cluster that is on its way
//!
//! While a slot moves key by key, a lock and its queue may be on two nodes, and the script is refused at both. It is
//! sent again until the slot has arrived. That may take longer than the lease lasts; then the lock has no
//! owner, no waiter gets it, and its holder is notified that the lease ran out. So after a while the lock is
//! freed alone, at the node that has it, by a command that names nothing else.
//!
//! To all other processes this is as if the lease had ended at that moment, with its release under way: the
//! lock is gone, and the queue as it was. So nothing can happen that an expiry cannot bring about (I2, I6:
//! the body is gone, and the next holder draws from the same counter), which includes the newcomer that may
//! pass the queue (I7). The script is still sent until it is carried out, and then lets in the first waiter.

use std::time::Duration;

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{Fault, Freed};
use redis::Value;

use crate::commands::server::Server;
use crate::connection::connection::Connection;
use crate::routing::routed;
use crate::script::{Arg, ScriptPair, Wakes};

/// How long the script is resent while a slot moves, if there is time: no newcomer passes the queue then.
const PATIENCE: Duration = Duration::from_millis(500);

/// The release of locks.
pub(crate) struct Releases {
    scripts: ScriptPair,
    of_lock: ScriptPair,
}

impl Releases {
    pub(crate) fn new(wakes: Wakes) -> Self {
        Self { scripts: ScriptPair::release(wakes), of_lock: ScriptPair::free() }
    }

    /// Frees the lock if this token owns it, or with `keep` has it expire after that time.
    pub(crate) async fn release(
        &self,
        server: &Server,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let mut route = server.routing.route(&server.alarms, owner.lock.stored(), answer_by);
        // Until when the script is sent and nothing else.
        let mut patient_until = None;
        loop {
            let mut connection = route.commands().await?;
            let mut answer = self.hand_on(server, owner, keep, &mut connection, answer_by).await;
            if !route.should_retry(&mut connection, &mut answer) {
                return answer;
            }
            // What is kept ends by itself.
            if keep.is_some() || !route.is_migrating() {
                continue;
            }
            let now = Clock::Boottime.now();
            if now < *patient_until.get_or_insert_with(|| patience(owner, now, answer_by)) {
                continue;
            }
            // Others that are released again do not wait for this one.
            if owner.was_freed() {
                return answer;
            }
            if Box::pin(self.free(server, owner, answer_by)).await? {
                return Ok(Freed { was_ours: true, settled: false, ..Freed::nothing() });
            }
            patient_until = Some(Moment::NEVER);
        }
    }

    /// Frees the lock if this token owns it, and lets no waiter in. Says whether it did.
    async fn free(&self, server: &Server, owner: &Owner, answer_by: Moment) -> Result<bool, Fault> {
        let script = self.of_lock.of(owner.limit);
        let (keys, args) = ([Arg::Text(owner.lock.stored())], [Arg::Text(&owner.token)]);
        let freed = routed!(server, owner.lock, answer_by, |connection| {
            connection.run(script, &keys, &args, answer_by)
        })?;
        let freed = freed == Value::Int(1);
        if freed {
            owner.set_freed();
        }
        Ok(freed)
    }

    /// The same at one node, and lets in the next waiter.
    async fn hand_on(
        &self,
        server: &Server,
        owner: &Owner,
        keep: Option<Duration>,
        connection: &mut Connection,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        // R9: an acquire that died unanswered with an older connection may still run.
        let settled = owner.is_behind(connection.live.number, &connection.live.closed);
        let keys = [Arg::Text(owner.lock.stored()), Arg::Queue(&owner.lock)];
        let mut args =
            [Arg::Text(&owner.token), Arg::Number(keep.map_or(0, millis)), Arg::Text("")];
        let mut count = 1 + usize::from(keep.is_some());
        let tag = server.tag(&owner.lock);
        if let Some(tag) = &tag {
            args[count] = Arg::Text(tag);
            count += 1;
        }
        let args = &args[..count];
        let (state, next) =
            match connection.run(self.scripts.of(owner.limit), &keys, args, answer_by).await? {
                Value::Int(state) => (state, Vec::new()),
                Value::Array(answer) => match answer.split_first() {
                    Some((Value::Int(state), next)) => match tokens(next) {
                        Some(next) => (*state, next),
                        None => return Err(connection.live.unexpected_answer()),
                    },
                    _ => return Err(connection.live.unexpected_answer()),
                },
                _ => return Err(connection.live.unexpected_answer()),
            };
        // Only now: one that was sent to another node in vain may have been sent here since.
        let settled = settled && !owner.was_resent();
        Ok(Freed { was_ours: state != 0, settled, next, awaited: state == 3 })
    }
}

/// Until when a release is sent again before the lock is freed alone: there must be time left for that, before the
/// caller gives up and before the lease ends.
fn patience(owner: &Owner, now: Moment, answer_by: Moment) -> Moment {
    let left = answer_by.min(owner.expired_by()).since(now);
    now.after(PATIENCE.min(left / 2))
}

/// The tokens for which the lock was reserved.
fn tokens(answer: &[Value]) -> Option<Vec<Box<str>>> {
    let token = |value: &Value| match value {
        Value::BulkString(token) => Some(String::from_utf8_lossy(token).into()),
        _ => None,
    };
    answer.iter().map(token).collect()
}
