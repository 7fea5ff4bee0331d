//! The records of processes in Redis: which process holds a lock, for operators (R15).
//!
//! `P:process:<id>` describes one process in words, and expires after a minute. `P:processes` lists the processes that
//! have a record. [`ProcessRecord`] decides when this process writes its record; this file knows how and where. A record
//! that cannot be written affects no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::catch_panic::shielded;
use distlock_core::clock::{Clock, Moment};
use distlock_core::process_info::{ProcessInfo, record_name};
use distlock_core::store::record::{KEPT, ProcessRecord, RecordKeeper};
use distlock_core::store::{Fault, Records};
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::cluster::{Cluster, LinkKind};
use crate::connection::error::is_denied;
use crate::connection::link::Link;
use crate::connection::live::{ConnectionHandle, RedisOr};
use crate::routing::Routing;
use crate::slots::Slot;

/// The most processes that one write removes from the list.
const FORGOTTEN: usize = 64;
/// The most records that are read with one write.
const TOGETHER: usize = 500;

/// Part of the names of all records in a cluster. It puts them into one slot.
const TAG: &str = "{processes}";

/// Where the records are kept.
enum Location {
    /// On the server of this link.
    Server(Arc<Link>),
    /// On the node that has the slot of [`TAG`].
    Cluster(Arc<Cluster>),
}

/// Keeps the records of processes in Redis.
pub(crate) struct RedisRecordKeeper {
    location: Location,
    command_timeout: Duration,
    /// The number of the connection on which this user may not write records; 0 if there is none. The record is not
    /// written again before the next connection.
    denied_on: AtomicU64,
}

impl RecordKeeper for RedisRecordKeeper {
    async fn is_up(&self) {
        match &self.location {
            Location::Server(link) => link.is_up().await,
            Location::Cluster(cluster) => cluster.is_known().await,
        }
    }

    async fn is_down(&self) {
        match &self.location {
            Location::Server(link) => link.is_down().await,
            Location::Cluster(cluster) => {
                if let Some(node) = cluster.owner(Slot::of(TAG)) {
                    node.pool.any().is_down().await;
                }
            }
        }
    }

    async fn write(&self, prefix: &str, info: &ProcessInfo) {
        let _ = shielded(self.try_write(prefix, info)).await;
    }
}

impl RedisRecordKeeper {
    /// Makes a keeper that uses the servers of this routing.
    pub(crate) fn new(routing: &Routing, command_timeout: Duration) -> Arc<Self> {
        let location = match routing {
            Routing::One(node) => Location::Server(node.pool.any().clone()),
            Routing::Cluster(cluster) => Location::Cluster(cluster.clone()),
        };
        Arc::new(Self { location, command_timeout, denied_on: AtomicU64::new(0) })
    }

    /// Connects to the server that has the records.
    async fn connection(&self, answer_by: Moment) -> Result<ConnectionHandle, Fault> {
        match &self.location {
            Location::Server(link) => link.connection(answer_by).await,
            Location::Cluster(cluster) => {
                cluster.reach(Slot::of(TAG), LinkKind::Any, answer_by).await
            }
        }
    }

    async fn try_write(&self, prefix: &str, info: &ProcessInfo) -> Result<(), Fault> {
        let now = Clock::Boottime.now();
        let answer_by = now.after(self.command_timeout);
        let mut connection = self.connection(answer_by).await?;
        if self.denied_on.load(Ordering::Relaxed) == connection.live.number {
            return Ok(());
        }
        let time = time(&connection.pipeline(&just_time(), now, answer_by).await?);
        let (id, kept) = (info.id(), KEPT.as_secs());
        let (record, list) = (self.key(prefix, id), self.list(prefix));
        let mut write = Pipeline::with_capacity(4);
        write.cmd("SET").arg(record).arg(info.record(time)).arg("PX").arg(kept * 1000);
        write.cmd("ZADD").arg(&list).arg(time).arg(id);
        write.cmd("PEXPIRE").arg(&list).arg(kept * 1000);
        let old = format!("({}", time.saturating_sub(kept));
        write.cmd("ZRANGE").arg(&list).arg("-inf").arg(old);
        write.arg("BYSCORE").arg("LIMIT").arg(0).arg(FORGOTTEN);
        let answers = connection.pipeline(&write, now, answer_by).await?;
        // Processes that have not written their records for that long have ended, or are idle.
        let gone: Vec<String> = match answers.last() {
            Some(Value::Array(ids)) => ids.iter().filter_map(text).collect(),
            _ => Vec::new(),
        };
        if !gone.is_empty() {
            let mut forget = Pipeline::with_capacity(1);
            forget.cmd("ZREM").arg(&list).arg(&gone);
            connection.pipeline(&forget, now, answer_by).await?;
        }
        let denied = |answer: &Value| match answer {
            Value::ServerError(error) => is_denied(&RedisError::from(error.clone())),
            _ => false,
        };
        if answers.iter().any(denied) {
            self.denied_on.store(connection.live.number, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the record of this process, and removes it from the server.
    pub(crate) async fn remove(
        &self,
        record: &ProcessRecord,
        id: &str,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        let mut connection = self.connection(answer_by).await?;
        record.end();
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("DEL").arg(self.key(&record.prefix, id));
        pipeline.cmd("ZREM").arg(self.list(&record.prefix)).arg(id);
        connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await.map(drop)
    }

    /// Returns the processes that have records under a prefix.
    pub(crate) async fn recorded(
        &self,
        prefix: &str,
        answer_by: Moment,
    ) -> Result<Vec<String>, Fault> {
        let mut connection = self.connection(answer_by).await?;
        let range = Cmd::zrange(self.list(prefix), 0, -1);
        match connection.command(&range, answer_by).await.map_err(RedisOr::into_fault)? {
            Value::Array(ids) => Ok(ids.iter().filter_map(text).collect()),
            _ => Err(connection.live.unexpected_answer()),
        }
    }

    /// Returns the records of these processes under a prefix, as far as they exist, and the server's time.
    pub(crate) async fn records(
        &self,
        prefix: &str,
        ids: &[String],
        answer_by: Moment,
    ) -> Result<Records, Fault> {
        let mut connection = self.connection(answer_by).await?;
        let now = Clock::Boottime.now();
        let time = time(&connection.pipeline(&just_time(), now, answer_by).await?);
        let mut texts = Vec::with_capacity(ids.len());
        for ids in ids.chunks(TOGETHER) {
            let mut pipeline = Pipeline::with_capacity(ids.len());
            for id in ids {
                pipeline.cmd("GET").arg(self.key(prefix, id));
            }
            let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
            if answers.len() != ids.len() {
                return Err(connection.live.unexpected_answer());
            }
            texts.extend(answers.iter().map(text));
        }
        Ok(Records { time, texts })
    }

    fn key(&self, prefix: &str, id: &str) -> String {
        match self.location {
            Location::Cluster(_) => [prefix, "process:", TAG, ":", id].concat(),
            Location::Server(_) => record_name(prefix, id),
        }
    }

    fn list(&self, prefix: &str) -> String {
        let name = match self.location {
            Location::Cluster(_) => TAG,
            Location::Server(_) => "processes",
        };
        [prefix, name].concat()
    }
}

fn just_time() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.cmd("TIME");
    pipeline
}

/// Reads the answer to `TIME`, in seconds since 1970; 0 if it has another form.
fn time(answers: &[Value]) -> u64 {
    let Some(Value::Array(parts)) = answers.first() else { return 0 };
    parts.first().and_then(text).and_then(|seconds| seconds.parse().ok()).unwrap_or(0)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}
