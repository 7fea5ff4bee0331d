//! Release: one idempotent script that frees a lock and hands it on, leaves the queue (R8), compensates for an acquire
//! without a reply (R9), and repairs a lock that expired while others were waiting.
//!
//! # While a slot of a cluster is being migrated
//!
//! While a slot is migrated key by key, a lock and its queue may be on two nodes, and both refuse the script. It is
//! sent again until the slot has arrived. That may take longer than the lease lasts. Then the lock has no owner, no
//! waiter gets it, and its holder is notified that the lease ran out. So after a while the lock is freed alone, at the
//! node that has it, by a command that names no other key.
//!
//! For all other processes it looks as if the lease had ended at that moment, while its release was in flight: the lock
//! is gone, and the queue is as it was. So nothing can happen that an expiry cannot cause. I2 and I6 hold: the body has
//! ended, and the next holder draws from the same counter. As after an expiry, a newcomer may pass the queue (I7). The
//! script is still sent until a node runs it, and then lets in the first waiter.

use std::time::Duration;

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{Fault, Freed};
use redis::Value;

use crate::commands::server::Server;
use crate::connection::live::ConnectionHandle;
use crate::routing::routed;
use crate::script::{Arg, ScriptPair, Wakes};

/// How long the script is sent again while a slot is being migrated, if there is time. No newcomer can pass the queue
/// meanwhile.
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

    /// Frees the lock if this token owns it. With `keep`, makes it expire after that time instead.
    pub(crate) async fn release(
        &self,
        server: &Server,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let mut route = server.routing.route(&server.alarms, owner.lock.stored(), answer_by);
        // Until when only the script is sent.
        let mut patient_until = None;
        loop {
            let mut connection = route.commands().await?;
            let mut answer = self.hand_on(server, owner, keep, &mut connection, answer_by).await;
            if !route.should_retry(&mut connection, &mut answer) {
                return answer;
            }
            // A lock that is kept ends by itself.
            if keep.is_some() || !route.is_migrating() {
                continue;
            }
            let now = Clock::Boottime.now();
            if now < *patient_until.get_or_insert_with(|| patience(owner, now, answer_by)) {
                continue;
            }
            // Other locks that are released again do not wait for this one.
            if owner.was_freed() {
                return answer;
            }
            if Box::pin(self.free_alone(server, owner, answer_by)).await? {
                return Ok(Freed { was_ours: true, settled: false, ..Freed::nothing() });
            }
            patient_until = Some(Moment::NEVER);
        }
    }

    /// Frees the lock if this token owns it, and lets no waiter in. Returns whether it did.
    async fn free_alone(
        &self,
        server: &Server,
        owner: &Owner,
        answer_by: Moment,
    ) -> Result<bool, Fault> {
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

    /// Runs the script at one node: it frees the lock and lets in the next waiter.
    async fn hand_on(
        &self,
        server: &Server,
        owner: &Owner,
        keep: Option<Duration>,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        // R9: an acquire that was sent on an older connection and has no reply may still run.
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
        // Checked only now: an acquire that another node refused may have been sent to this node meanwhile.
        let settled = settled && !owner.was_resent();
        Ok(Freed { was_ours: state != 0, settled, next, awaited: state == 3 })
    }
}

/// Returns until when a release is sent again before the lock is freed alone. There must be time left for that, before
/// the caller gives up and before the lease ends.
fn patience(owner: &Owner, now: Moment, answer_by: Moment) -> Moment {
    let left = answer_by.min(owner.expired_by()).since(now);
    now.after(PATIENCE.min(left / 2))
}

/// Reads the tokens for which the lock was reserved.
fn tokens(answer: &[Value]) -> Option<Vec<Box<str>>> {
    let token = |value: &Value| match value {
        Value::BulkString(token) => Some(String::from_utf8_lossy(token).into()),
        _ => None,
    };
    answer.iter().map(token).collect()
}
