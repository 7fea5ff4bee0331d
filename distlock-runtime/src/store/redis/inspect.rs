//! Questions that change nothing: the holder of a lock, the processes that wait for it, and whether the
//! server answers.

use std::time::Duration;

use redis::{Cmd, RedisError, Value};

use super::connection::{Connection, RedisOr, integer};
use super::error::fault;
use super::script::Arg;
use super::server::Server;
use crate::clock::{Clock, Moment};
use crate::name::LockName;
use crate::store::{Fault, Held, Holder};

/// The holder of a lock, without the processes that wait for it.
pub(super) async fn holder(
    lock: &str,
    live: &mut Connection,
    answer_by: Moment,
) -> Result<Option<Holder>, Fault> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(lock).cmd("PTTL").arg(lock);
    match live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?.as_slice() {
        [Value::Nil, _] => Ok(None),
        [Value::BulkString(token), remaining] => {
            let token = String::from_utf8_lossy(token).into_owned();
            let remaining = u64::try_from(integer(remaining)?).ok().map(Duration::from_millis);
            Ok(Some(Holder { token, remaining }))
        }
        [Value::ServerError(error), _] => Err(fault(&RedisError::from(error.clone()))),
        _ => Err(live.unexpected_answer()),
    }
}

/// The holder of a lock and the processes that wait for it.
pub(super) async fn inspect(
    server: &Server,
    lock: &LockName,
    answer_by: Moment,
) -> Result<Option<Held>, Fault> {
    let mut live = server.pool.commands(lock.stored()).live(answer_by).await?;
    let holder = holder(lock.stored(), &mut live, answer_by).await?;
    let queue = Cmd::zrange(Arg::Queue(lock), 0, -1);
    let queue = live.command(&queue, answer_by).await.map_err(RedisOr::into_fault)?;
    let Value::Array(queue) = queue else { return Err(live.unexpected_answer()) };
    let token = |token: &Value| match token {
        Value::BulkString(token) => Some(String::from_utf8_lossy(token).into_owned()),
        _ => None,
    };
    let queue = queue.iter().filter_map(token).collect();
    Ok(holder.map(|holder| Held { holders: vec![holder], queue }))
}

/// How long the server takes to answer.
pub(super) async fn ping(server: &Server, answer_by: Moment) -> Result<Duration, Fault> {
    let mut live = server.pool.all_commands()[0].live(answer_by).await?;
    // No `PING`, which needs a right of its own and is answered by a server that cannot read its data
    // yet.
    let mut exists = redis::cmd("EXISTS");
    exists.arg(&*server.fences.own.key);
    let sent = Clock::Boottime.now();
    match live.command(&exists, answer_by).await.map_err(RedisOr::into_fault)? {
        Value::Int(_) => Ok(Clock::Boottime.now().since(sent)),
        _ => Err(live.unexpected_answer()),
    }
}
