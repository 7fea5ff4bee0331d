//! Queries that change nothing: the holder of a lock, the waiting processes, and whether the server replies.

use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::owner::Owner;
use distlock_core::store::{Answer, Attempt, Fault, Held, Holder};
use redis::{Cmd, FromRedisValue, RedisError, ServerError, Value};

use crate::commands::fence::Fences;
use crate::connection::error::fault;
use crate::connection::live::{ConnectionHandle, RedisOr, integer};
use crate::script::Arg;

/// The code of a server's reply to a command that does not fit the type of a key.
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE";

/// How often to ask about a key that seems to be neither a string nor a sorted set. The commands of a pipeline may see
/// the key before and after it changes from one to the other.
pub(crate) const LOOKS: usize = 3;

/// Returns the holders of a lock, and the tokens that wait for it.
pub(crate) async fn inspect(
    lock: &LockName,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Option<Held>, Fault> {
    let name = lock.stored();
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(&**name).cmd("PTTL").arg(&**name);
    pipeline.cmd("ZRANGE").arg(&**name).arg(0).arg(-1).arg("WITHSCORES").cmd("TIME");
    pipeline.add_command(Cmd::zrange(Arg::Queue(lock), 0, -1));
    let mut answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    for _ in 1..LOOKS {
        // The lock may have changed its type between the two queries.
        let refuses =
            |answer: &Value| matches!(answer, Value::ServerError(error) if is_wrong_type(error));
        if ![0, 2].iter().all(|question| answers.get(*question).is_some_and(refuses)) {
            break;
        }
        answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    }
    let [alone, remaining, together, time, queue] = answers.as_slice() else {
        return Err(connection.live.unexpected_answer());
    };
    let holders = match (alone, together) {
        (Value::Nil, _) => return Ok(None),
        (Value::BulkString(token), _) => {
            let token = String::from_utf8_lossy(token).into_owned();
            vec![Holder { token, remaining: after(integer(remaining)?) }]
        }
        (Value::ServerError(_), Value::Array(_)) => {
            let now = time_ms(time).ok_or_else(|| connection.live.unexpected_answer())?;
            let ends = integer(remaining)? >= 0;
            let tokens = Vec::<(String, f64)>::from_redis_value(together.clone());
            let tokens = tokens.map_err(|_| connection.live.unexpected_answer())?;
            // Tokens whose lease has ended stay in the set until their place is needed.
            let tokens = tokens.into_iter().filter(|(_, end)| !ends || *end >= now as f64);
            let lasts = |end: f64| ends.then(|| Duration::from_millis((end - now as f64) as u64));
            tokens.map(|(token, end)| Holder { token, remaining: lasts(end) }).collect()
        }
        (Value::ServerError(error), _) => return Err(fault(&RedisError::from(error.clone()))),
        _ => return Err(connection.live.unexpected_answer()),
    };
    let queue = match queue {
        Value::Array(queue) => queue,
        Value::ServerError(error) => return Err(fault(&RedisError::from(error.clone()))),
        _ => return Err(connection.live.unexpected_answer()),
    };
    let queue = queue.iter().filter_map(token).collect();
    Ok((!holders.is_empty()).then_some(Held { holders, queue }))
}

/// Returns a member of a queue, whether it is a token or not.
fn token(value: &Value) -> Option<String> {
    let Value::BulkString(token) = value else { return None };
    Some(String::from_utf8_lossy(token).into_owned())
}

/// Reads the reply to `PTTL`; `None` for a key that does not expire.
pub(crate) fn after(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// Reads the reply to `TIME`, in ms.
fn time_ms(answer: &Value) -> Option<u64> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |part: &Value| u64::from_redis_value(part.clone()).ok();
    Some(number(seconds)? * 1000 + number(micros)? / 1000)
}

/// Measures how long the server takes to reply.
pub(crate) async fn ping(
    fences: &Fences,
    lock: &LockName,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Duration, Fault> {
    // Not with `PING`, which needs a right of its own, and which a server answers even if it cannot read its data yet.
    let mut exists = redis::cmd("EXISTS");
    exists.arg(&*fences.of(lock).key);
    let sent = Clock::Boottime.now();
    match connection.command(&exists, answer_by).await.map_err(RedisOr::into_fault)? {
        Value::Int(_) => Ok(Clock::Boottime.now().since(sent)),
        _ => Err(connection.live.unexpected_answer()),
    }
}

/// Returns the present state of a lock that another token has, or that is free by now; `None` if this token has it.
pub(crate) async fn taken(
    owner: &Owner,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Option<Answer>, Fault> {
    let lock = &**owner.lock.stored();
    let mut pipeline = redis::pipe();
    pipeline.cmd("GET").arg(lock).cmd("PTTL").arg(lock);
    pipeline.cmd("ZSCORE").arg(lock).arg(&owner.token);
    let mut looks = 1;
    let remaining = loop {
        let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        match answers.as_slice() {
            [Value::Nil, _, _] => break Some(Duration::ZERO),
            [Value::BulkString(token), _, _] if *token == owner.token.as_bytes() => {
                return Ok(None);
            }
            [Value::BulkString(_), left, _] => break after(integer(left)?),
            // A shared lock is a sorted set. A key that refuses both queries again and again is no lock.
            [Value::ServerError(alone), left, together] if is_wrong_type(alone) => match together {
                Value::Nil => break after(integer(left)?),
                Value::ServerError(other) if is_wrong_type(other) && looks < LOOKS => looks += 1,
                Value::ServerError(other) => return Err(fault(&RedisError::from(other.clone()))),
                _ => return Ok(None),
            },
            [Value::ServerError(error), _, _] => {
                return Err(fault(&RedisError::from(error.clone())));
            }
            _ => return Err(connection.live.unexpected_answer()),
        }
    };
    Ok(Some(Answer::Taken { remaining }))
}

/// Whether the key exists and has another type.
pub(crate) fn is_wrong_type(error: &ServerError) -> bool {
    error.code() == WRONG_TYPE
}

/// Resolves an attempt whose token the engine has already sent. The fence is 0, because the line has the counter value.
pub(crate) async fn taken_over(
    attempt: &Attempt,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let owner = &*attempt.owner;
    if !attempt.look {
        return Err(Fault::given_up());
    }
    let taken = taken(owner, connection, answer_by).await?;
    Ok(taken.unwrap_or(Answer::Granted { fence: 0, sent: owner.first_sent() }))
}
