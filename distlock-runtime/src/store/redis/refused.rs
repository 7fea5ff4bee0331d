//! Which token has the lock, after `SET NX` has refused a try or its answer was lost.

use std::time::Duration;

use redis::{RedisError, Value};

use super::connection::{Connection, RedisOr, integer};
use super::error::fault;
use super::inspect::{WRONG_TYPE, after};
use crate::clock::{Clock, Moment};
use crate::store::owner::Owner;
use crate::store::{Answer, Attempt, Fault};

/// The lock is another token's, or free by now; `None` if it is this token's.
pub(super) async fn taken(
    owner: &Owner,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Option<Answer>, Fault> {
    let lock = &**owner.lock.stored();
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(lock).cmd("PTTL").arg(lock);
    let remaining =
        match live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?.as_slice() {
            [Value::Nil, _] => Some(Duration::ZERO),
            [Value::BulkString(token), _] if *token == owner.token.as_bytes() => return Ok(None),
            [Value::BulkString(_), left] => after(integer(left)?),
            [Value::ServerError(error), left] => {
                let error = RedisError::from(error.clone());
                if error.code() != Some(WRONG_TYPE) {
                    return Err(fault(&error));
                }
                // Rare, so not worth a command of every try: a set is held together, anything else is no
                // lock, and refuses this too.
                let mut own = redis::cmd("ZSCORE");
                own.arg(lock).arg(&owner.token);
                match live.command(&own, answer_by).await.map_err(RedisOr::into_fault)? {
                    Value::Nil => after(integer(left)?),
                    _ => return Ok(None),
                }
            }
            _ => return Err(live.unexpected_answer()),
        };
    Ok(Some(Answer::Taken { remaining }))
}

/// What a try comes to whose token the engine has sent. Its line has the counter value.
pub(super) async fn taken_over(
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
