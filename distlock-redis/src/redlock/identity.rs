//! Identifies a node of a quorum: its run, its own id, and the list of servers that it belongs to.

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::{BackendKind, Fault};
use redis::{RedisError, Value};

use crate::commands::first_contact;
use crate::connection::error::fault;
use crate::redlock::vote::text;
use crate::store::RedisStore;

const INFO_DENIED: &str = "redlock:// needs `INFO`, which tells whether a server has restarted: permit it with \
    `+info`";

/// Replaces the list of servers if it is still the one that was read (`ARGV[1]`, empty for none). Returns the
/// list that is there now.
const ENLIST: &str = "local there = redis.call('GET', KEYS[1]) \
    if (there or '') == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) there = ARGV[2] end \
    return there";

/// The identity of a server.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Changes with every start of the server.
    pub(crate) run_id: String,
    /// Chosen at random by the first process that found none; lost with the server's data.
    pub(crate) id: String,
    /// The list of its quorum's servers, as the server keeps it.
    pub(crate) list: Option<String>,
    /// The note of processes that have watched it.
    pub(crate) watched: Option<String>,
}

impl RedisStore {
    /// Asks the server for its identity, and gives it the id `id` unless it has one. Also returns the number of
    /// the connection.
    pub(crate) async fn identity(
        &self,
        id: &str,
        answer_by: Moment,
    ) -> Result<(u64, Identity), Fault> {
        let mut connection = self.node_link()?.first(answer_by).await?;
        if let Some(unused) = self.server.unused() {
            Box::pin(first_contact::run(&self.server, &unused, &mut connection, answer_by)).await?;
        }
        let own = self.quorum_key(":id");
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").arg("server").cmd("TIME");
        pipeline.cmd("SET").arg(&own).arg(id).arg("NX").cmd("GET").arg(&own);
        pipeline.cmd("GET").arg(self.quorum_key(""));
        pipeline.cmd("GET").arg(self.quorum_key(":watched"));
        let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        let [info, time, set, id, list, watched] = answers.as_slice() else {
            return Err(connection.live.unexpected_answer());
        };
        for answer in [info, set, id, list, watched] {
            if let Value::ServerError(error) = answer {
                let error = RedisError::from(error.clone());
                connection.live.check_error(&error);
                let denied = std::ptr::eq(answer, info) && error.code() == Some("NOPERM");
                return Err(match denied {
                    true => Fault::lasting(BackendKind::Refused, INFO_DENIED),
                    false => fault(&error),
                });
            }
        }
        if let Some(micros) = micros(time) {
            connection.live.server_clock.set(micros);
        }
        let info = text(info).ok_or_else(|| connection.live.unexpected_answer())?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
        let (Some(run_id), Some(id)) = (run_id, text(id)) else {
            return Err(connection.live.unexpected_answer());
        };
        let run_id = run_id.to_owned();
        Ok((
            connection.live.number,
            Identity { run_id, id, list: text(list), watched: text(watched) },
        ))
    }

    /// Writes the list of servers, if the list that was read is still there. Returns the list that is there
    /// now.
    pub(crate) async fn enlist(
        &self,
        before: Option<&str>,
        list: &str,
        answer_by: Moment,
    ) -> Result<Option<String>, Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        let mut pipeline = redis::pipe();
        pipeline.cmd("EVAL").arg(ENLIST).arg(1).arg(self.quorum_key(""));
        pipeline.arg(before.unwrap_or_default()).arg(list);
        let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        match answers.first() {
            Some(Value::ServerError(error)) => Err(fault(&RedisError::from(error.clone()))),
            Some(there) => Ok(text(there)),
            None => Err(connection.live.unexpected_answer()),
        }
    }

    /// Returns the note of processes that have watched the server, after writing `ours` if it is given.
    pub(crate) async fn watched(
        &self,
        ours: Option<&str>,
        answer_by: Moment,
    ) -> Result<Option<String>, Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        let (key, mut pipeline) = (self.quorum_key(":watched"), redis::pipe());
        if let Some(ours) = ours {
            pipeline.cmd("SET").arg(&key).arg(ours);
        }
        pipeline.cmd("GET").arg(&key);
        let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        Ok(answers.last().and_then(text))
    }

    /// Resolves when a connection opens, and when none is open any more.
    pub(crate) async fn is_up(&self, wanted: bool) {
        let Some(link) = &self.link else { return std::future::pending().await };
        match wanted {
            true => link.is_up().await,
            false => link.is_down().await,
        }
    }

    fn quorum_key(&self, rest: &str) -> String {
        [&*self.server.record.prefix, "quorum", rest].concat()
    }
}

/// Parses the answer to `TIME`.
fn micros(time: &Value) -> Option<i64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |value: &Value| text(value)?.parse::<i64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}
