//! Release: one idempotent script that frees and hands on, leaves the queue (R8), compensates for an
//! acquire without an answer (R9), and repairs a lock that expired with others waiting.

use std::time::Duration;

use redis::Value;

use super::connection::Connection;
use super::script::{Arg, Scripts, Wakes};
use super::server::Server;
use crate::clock::Moment;
use crate::limits::millis;
use crate::store::owner::Owner;
use crate::store::{Fault, Freed};

/// The release of locks.
pub(super) struct Releases {
    scripts: Scripts,
}

impl Releases {
    pub(super) fn new(wakes: Wakes) -> Self {
        Self { scripts: Scripts::release(wakes) }
    }

    /// Frees the lock if this token owns it, or with `keep` has it expire after that time.
    pub(super) async fn release(
        &self,
        server: &Server,
        owner: &Owner,
        keep: Option<Duration>,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        // R9: an acquire that died unanswered with an older connection may still run.
        let settled = owner.is_behind(live.number, &live.closed);
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
            match live.run(self.scripts.of(owner.limit), &keys, args, answer_by).await? {
                Value::Int(state) => (state, Vec::new()),
                Value::Array(answer) => match answer.split_first() {
                    Some((Value::Int(state), next)) => match tokens(next) {
                        Some(next) => (*state, next),
                        None => return Err(live.unexpected_answer()),
                    },
                    _ => return Err(live.unexpected_answer()),
                },
                _ => return Err(live.unexpected_answer()),
            };
        // Only now: one that was sent to another node in vain may have been sent here since.
        let settled = settled && !owner.was_resent();
        Ok(Freed { was_ours: state != 0, settled, next, awaited: state == 3 })
    }
}

/// Those for whom the lock was reserved.
fn tokens(answer: &[Value]) -> Option<Vec<Box<str>>> {
    let token = |value: &Value| match value {
        Value::BulkString(token) => Some(String::from_utf8_lossy(token).into()),
        _ => None,
    };
    answer.iter().map(token).collect()
}
