//! Which token has the lock, after `SET NX` has refused a try or its answer was lost.

use std::time::Duration;

use redis::{RedisError, ServerError, Value};

use crate::commands::inspect::{WRONG_TYPE, after};
use crate::connection::error::fault;
use crate::connection::live::{Connection, integer};
use distlock_core::clock::{Clock, Moment};
use distlock_core::store::owner::Owner;
use distlock_core::store::{Answer, Attempt, Fault};

/// How often to ask again about a key that looks like neither a string nor a sorted set. The commands of a
/// pipeline may see it before and after it changes from one to the other.
pub(crate) const LOOKS: usize = 3;

/// The lock is another token's, or free by now; `None` if it is this token's.
pub(crate) async fn taken(
    owner: &Owner,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Option<Answer>, Fault> {
    let lock = &**owner.lock.stored();
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(lock).cmd("PTTL").arg(lock);
    pipeline.cmd("ZSCORE").arg(lock).arg(&owner.token);
    let mut looks = 1;
    let remaining = loop {
        let answers = live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        match answers.as_slice() {
            [Value::Nil, _, _] => break Some(Duration::ZERO),
            [Value::BulkString(token), _, _] if *token == owner.token.as_bytes() => {
                return Ok(None);
            }
            [Value::BulkString(_), left, _] => break after(integer(left)?),
            // A shared lock is a sorted set. A key that refuses both questions, again and again, is no lock.
            [Value::ServerError(alone), left, together] if is_wrong_type(alone) => match together {
                Value::Nil => break after(integer(left)?),
                Value::ServerError(other) if is_wrong_type(other) && looks < LOOKS => looks += 1,
                Value::ServerError(other) => return Err(fault(&RedisError::from(other.clone()))),
                _ => return Ok(None),
            },
            [Value::ServerError(error), _, _] => {
                return Err(fault(&RedisError::from(error.clone())));
            }
            _ => return Err(live.unexpected_answer()),
        }
    };
    Ok(Some(Answer::Taken { remaining }))
}

/// The key exists and has another type.
pub(crate) fn is_wrong_type(error: &ServerError) -> bool {
    error.code() == WRONG_TYPE
}

/// What a try comes to whose token the engine has sent. Its line has the counter value.
pub(crate) async fn taken_over(
    attempt: &Attempt,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let owner = &*attempt.owner;
    if !attempt.look {
        return Err(Fault::given_up());
    }
    let taken = taken(owner, live, answer_by).await?;
    Ok(taken.unwrap_or(Answer::Granted { fence: 0, sent: owner.first_sent() }))
}
