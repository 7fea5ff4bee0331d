//! The record of this process, and those of others: which process holds a lock, for operators (R15).
//!
//! `P:process:<id>` says it in words, for a minute; `P:processes` lists the processes that have one. It is written on
//! every new connection, and when the process takes or renews a lock and has not written it for a while: a
//! process that is idle writes nothing, and is forgotten. Whatever goes wrong with it concerns no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::catch_panic::shielded;
use distlock_core::clock::{Clock, Moment};
use distlock_core::process_info::{ProcessInfo, record_name};
use distlock_core::select::until;
use distlock_core::store::{Fault, Records};
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::cluster::{Cluster, Line};
use crate::connection::connection::Connection;
use crate::connection::error::is_denied;
use crate::connection::link::Link;
use crate::slots::Slot;

/// How long a record is kept.
const KEPT: Duration = Duration::from_secs(60);
/// How long it is good enough for a process that uses locks.
const FRESH: Duration = Duration::from_secs(20);
/// How many that are gone are forgotten with one write.
const FORGOTTEN: usize = 64;
/// How many records are read with one write.
const TOGETHER: usize = 500;

/// What is in the names of all records in a cluster: it puts them into one slot.
pub(crate) const TAG: &str = "{processes}";

/// Where the records are kept.
pub(crate) enum Keeper {
    /// The server of this link.
    Link(Arc<Link>),
    /// The node that has their slot.
    Cluster(Arc<Cluster>),
}

impl Keeper {
    async fn is_up(&self) {
        match self {
            Self::Link(link) => link.is_up().await,
            Self::Cluster(cluster) => cluster.is_known().await,
        }
    }

    async fn is_down(&self) {
        match self {
            Self::Link(link) => link.is_down().await,
            Self::Cluster(cluster) => {
                if let Some(node) = cluster.owner(Slot::of(TAG)) {
                    node.any_link().is_down().await;
                }
            }
        }
    }

    async fn live(&self, answer_by: Moment) -> Result<Connection, Fault> {
        match self {
            Self::Link(link) => link.live(answer_by).await,
            Self::Cluster(cluster) => cluster.reach(Slot::of(TAG), Line::Any, answer_by).await,
        }
    }
}

/// The record of this process.
pub(crate) struct Record {
    /// The prefix of the manager, with its separator.
    prefix: String,
    /// The names have a tag that puts them into one slot of a cluster.
    tagged: bool,
    /// When it was written last; `NEVER` while it is not to be written.
    written: AtomicU64,
    /// It is to be written again.
    wanted: Notify,
    /// It was removed for good.
    removed: AtomicBool,
}

impl Record {
    /// Of no process, until it is [started](Self::start).
    pub(crate) fn new(prefix: String, tagged: bool) -> Self {
        Self {
            prefix,
            tagged,
            written: AtomicU64::new(Moment::NEVER.as_nanos()),
            wanted: Notify::new(),
            removed: AtomicBool::new(false),
        }
    }

    /// The prefix of the manager, with its separator.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Has it written from now on, whenever its keeper is connected.
    pub(crate) fn start(
        self: &Arc<Self>,
        itself: &ProcessInfo,
        link: Keeper,
        command_timeout: Duration,
        handle: &Handle,
    ) {
        self.written.store(0, Ordering::Relaxed);
        let (record, itself) = (self.clone(), itself.clone());
        handle.spawn(async move { record.supervise(&link, &itself, command_timeout).await });
    }

    /// The process takes, awaits or renews a lock.
    pub(crate) fn used(&self, now: Moment) {
        let written = Moment::from_nanos(self.written.load(Ordering::Relaxed));
        // Later than now, if it is not to be written.
        if now.since(written) > FRESH {
            self.written.store(now.as_nanos(), Ordering::Relaxed);
            self.wanted.notify_one();
        }
    }

    async fn supervise(&self, link: &Keeper, itself: &ProcessInfo, command_timeout: Duration) {
        loop {
            link.is_up().await;
            if self.removed.load(Ordering::Acquire) {
                return;
            }
            let is_allowed = shielded(self.write(link, itself, command_timeout)).await;
            let is_allowed = !matches!(is_allowed, Some(Ok(false)));
            let again = async {
                loop {
                    self.wanted.notified().await;
                    if is_allowed {
                        return;
                    }
                }
            };
            until(again, link.is_down()).await;
        }
    }

    /// False if this user may not: then it is not tried again on this connection.
    async fn write(
        &self,
        link: &Keeper,
        itself: &ProcessInfo,
        command_timeout: Duration,
    ) -> Result<bool, Fault> {
        let now = Clock::Boottime.now();
        let answer_by = now.after(command_timeout);
        self.written.store(now.as_nanos(), Ordering::Relaxed);
        let mut live = link.live(answer_by).await?;
        let time = time(&live.pipeline(&just_time(), now, answer_by).await?);
        let (id, kept) = (itself.id(), KEPT.as_secs());
        let (record, list) = (self.key(&self.prefix, id), self.list(&self.prefix));
        let mut write = Pipeline::with_capacity(4);
        write.cmd("SET").arg(record).arg(itself.record(time)).arg("PX").arg(kept * 1000);
        write.cmd("ZADD").arg(&list).arg(time).arg(id);
        write.cmd("PEXPIRE").arg(&list).arg(kept * 1000);
        let old = format!("({}", time.saturating_sub(kept));
        write.cmd("ZRANGE").arg(&list).arg("-inf").arg(old);
        write.arg("BYSCORE").arg("LIMIT").arg(0).arg(FORGOTTEN);
        let answers = live.pipeline(&write, now, answer_by).await?;
        // Others that have not written theirs for so long: they are gone, or idle.
        let gone: Vec<String> = match answers.last() {
            Some(Value::Array(ids)) => ids.iter().filter_map(text).collect(),
            _ => Vec::new(),
        };
        if !gone.is_empty() {
            let mut forget = Pipeline::with_capacity(1);
            forget.cmd("ZREM").arg(&list).arg(&gone);
            live.pipeline(&forget, now, answer_by).await?;
        }
        let denied = |answer: &Value| match answer {
            Value::ServerError(error) => is_denied(&RedisError::from(error.clone())),
            _ => false,
        };
        Ok(!answers.iter().any(denied))
    }

    /// Removes it for good.
    pub(crate) async fn remove(
        &self,
        id: &str,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        self.written.store(Moment::NEVER.as_nanos(), Ordering::Relaxed);
        self.removed.store(true, Ordering::Release);
        self.wanted.notify_one();
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("DEL").arg(self.key(&self.prefix, id));
        pipeline.cmd("ZREM").arg(self.list(&self.prefix)).arg(id);
        live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await.map(drop)
    }

    /// The processes that were noted under a prefix.
    pub(crate) async fn recorded(
        &self,
        prefix: &str,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<Vec<String>, Fault> {
        let range = Cmd::zrange(self.list(prefix), 0, -1);
        match live
            .command(&range, answer_by)
            .await
            .map_err(crate::connection::connection::RedisOr::into_fault)?
        {
            Value::Array(ids) => Ok(ids.iter().filter_map(text).collect()),
            _ => Err(live.unexpected_answer()),
        }
    }

    /// The records of these processes under a prefix, each if there is one, and the server's time.
    pub(crate) async fn records(
        &self,
        prefix: &str,
        ids: &[String],
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<Records, Fault> {
        let time = time(&live.pipeline(&just_time(), Clock::Boottime.now(), answer_by).await?);
        let mut texts = Vec::with_capacity(ids.len());
        for ids in ids.chunks(TOGETHER) {
            let mut pipeline = Pipeline::with_capacity(ids.len());
            for id in ids {
                pipeline.cmd("GET").arg(self.key(prefix, id));
            }
            let answers = live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
            if answers.len() != ids.len() {
                return Err(live.unexpected_answer());
            }
            texts.extend(answers.iter().map(text));
        }
        Ok(Records { time, texts })
    }

    fn key(&self, prefix: &str, id: &str) -> String {
        match self.tagged {
            true => [prefix, "process:", TAG, ":", id].concat(),
            false => record_name(prefix, id),
        }
    }

    fn list(&self, prefix: &str) -> String {
        [prefix, if self.tagged { TAG } else { "processes" }].concat()
    }
}

fn just_time() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.cmd("TIME");
    pipeline
}

/// In seconds since 1970; 0 if the server does not say.
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
