//! Commands of operators' tools: raw commands, the names of all locks, and many locks at a glance.

use std::collections::BTreeMap;
use std::sync::Arc;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::admin::{Glance, StoreCommand, StoreReply, Walked};
use distlock_core::store::{BackendKind, Fault, Holder};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};

use crate::commands::inspect;
use crate::commands::server::Server;
use crate::connection::error::words;
use crate::connection::live::{ConnectionHandle, integer};
use crate::node::Node;
use crate::routing::{Routing, routed};
use crate::script::Arg;

/// How many keys a server examines in one step of a walk.
const STEP: usize = 1000;
/// How many locks are queried with one write.
const TOGETHER: usize = 500;

impl Server {
    /// Returns the servers that have locks, by their addresses. The address of a primary behind Sentinel is empty.
    pub(crate) fn nodes_named(&self) -> BTreeMap<String, Arc<Node>> {
        let nodes = match &self.routing {
            Routing::One(node) => vec![node.clone()],
            Routing::Cluster(cluster) => cluster.all(),
        };
        nodes.into_iter().map(|node| (node.address().unwrap_or_default(), node)).collect()
    }

    pub(crate) async fn at(
        &self,
        address: &str,
        answer_by: Moment,
    ) -> Result<ConnectionHandle, Fault> {
        match self.nodes_named().get(address) {
            Some(node) => node.pool.any().connection(answer_by).await,
            None => {
                Err(Fault::passing(BackendKind::Unreachable, "this node is not there any more"))
            }
        }
    }

    /// Returns the next part of all names. A cursor is the address of a node and the server's own cursor there:
    /// `10.0.0.1:6379 17`.
    pub(crate) async fn walk(
        &self,
        prefix: &str,
        cursor: &str,
        answer_by: Moment,
    ) -> Result<Walked, Fault> {
        // The nodes of a cluster must be known first.
        self.any(answer_by).await?;
        let nodes = self.nodes_named();
        let (address, at) = match cursor.rsplit_once(' ') {
            Some((address, at)) => (address.to_owned(), at),
            None => (nodes.keys().next().cloned().unwrap_or_default(), "0"),
        };
        let mut behind = nodes.keys().filter(|other| **other > address);
        let next_node = behind.next().map(|behind| format!("{behind} 0"));
        match self.scan(&address, prefix, at, answer_by).await {
            Ok((next, names)) => {
                let here = (next != "0").then(|| format!("{address} {next}"));
                Ok(Walked { names, next: here.or(next_node), missed: None })
            }
            Err(fault) if nodes.len() > 1 => {
                let missed = Some((address, fault.to_string()));
                Ok(Walked { names: Vec::new(), next: next_node, missed })
            }
            Err(fault) => Err(fault),
        }
    }

    async fn scan(
        &self,
        node: &str,
        prefix: &str,
        cursor: &str,
        answer_by: Moment,
    ) -> Result<(String, Vec<String>), Fault> {
        let mut connection = self.at(node, answer_by).await?;
        let mut scan = redis::pipe();
        scan.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern(prefix)).arg("COUNT").arg(STEP);
        let mut answers = connection.pipeline(&scan, Clock::Boottime.now(), answer_by).await?;
        match answers.pop() {
            Some(Value::ServerError(error)) => {
                Err(crate::connection::error::fault(&RedisError::from(error)))
            }
            Some(found) => <(String, Vec<Value>)>::from_redis_value(found)
                .map(|(next, names)| (next, names.iter().filter_map(text).collect()))
                .map_err(|_| connection.live.unexpected_answer()),
            None => Err(connection.live.unexpected_answer()),
        }
    }

    /// Looks at many locks. Locks of a node that does not reply are left out, unless no node replies.
    pub(crate) async fn glances(
        &self,
        locks: &[Arc<LockName>],
        answer_by: Moment,
    ) -> Result<Vec<Option<Glance>>, Fault> {
        let routing = &self.routing;
        let mut by_part: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, lock) in locks.iter().enumerate() {
            by_part.entry(routing.part(lock.stored())).or_default().push(at);
        }
        let mut glances: Vec<Option<Glance>> = locks.iter().map(|_| None).collect();
        let (mut seen, mut failed) = (locks.is_empty(), None);
        for part in by_part.values() {
            for part in part.chunks(TOGETHER) {
                let of_part: Vec<_> = part.iter().map(|at| &locks[*at]).collect();
                match self.glances_of_node(&of_part, answer_by).await {
                    Ok(found) => {
                        seen = true;
                        part.iter().zip(found).for_each(|(at, glance)| glances[*at] = glance);
                    }
                    Err(fault) => failed = Some(fault),
                }
            }
        }
        match failed {
            Some(fault) if !seen => Err(fault),
            _ => Ok(glances),
        }
    }

    /// Looks at locks that are on one node. There must be at least one.
    async fn glances_of_node(
        &self,
        locks: &[&Arc<LockName>],
        answer_by: Moment,
    ) -> Result<Vec<Option<Glance>>, Fault> {
        let mut connection =
            self.routing.route(&self.alarms, locks[0].stored(), answer_by).commands().await?;
        let mut questions = Pipeline::with_capacity(3 * locks.len());
        for lock in locks {
            let name = &**lock.stored();
            questions.cmd("GET").arg(name).cmd("PTTL").arg(name);
            questions.cmd("ZCARD").arg(Arg::Queue(lock));
        }
        let answers = connection.pipeline(&questions, Clock::Boottime.now(), answer_by).await?;
        let mut glances = Vec::with_capacity(locks.len());
        for (lock, answers) in locks.iter().zip(answers.chunks(3)) {
            glances.push(match answers {
                [Value::Nil, _, _] => None,
                [Value::BulkString(token), left, waiting @ Value::Int(_)] => {
                    let token = String::from_utf8_lossy(token).into_owned();
                    let remaining = inspect::after(integer(left)?);
                    let waiting = u64::try_from(integer(waiting)?).unwrap_or_default();
                    let holders = vec![Holder { token, remaining }];
                    Some(Glance { holders, waiting, amiss: None })
                }
                // A shared lock, a lock that has moved to another node, or other data. These are rare.
                _ => self.inspect_closely(lock, answer_by).await?,
            });
        }
        Ok(glances)
    }

    async fn inspect_closely(
        &self,
        lock: &Arc<LockName>,
        answer_by: Moment,
    ) -> Result<Option<Glance>, Fault> {
        let held = routed!(self, lock, answer_by, |connection| inspect::inspect(
            lock, connection, answer_by
        ));
        match held {
            Ok(held) => Ok(held.map(Glance::from)),
            // The other locks are shown all the same.
            Err(fault) if fault.to_string().contains(inspect::WRONG_TYPE) => {
                let found =
                    routed!(self, lock, answer_by, |connection| amiss(lock, connection, answer_by));
                Ok(Some(Glance { holders: Vec::new(), waiting: 0, amiss: Some(found?) }))
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Describes the data in the place of a lock, or of its queue, if it is not ours.
async fn amiss(
    lock: &LockName,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<String, Fault> {
    let mut questions = Pipeline::with_capacity(2);
    questions.cmd("TYPE").arg(&**lock.stored()).cmd("TYPE").arg(Arg::Queue(lock));
    let answers = connection.pipeline(&questions, Clock::Boottime.now(), answer_by).await?;
    let kinds: Vec<_> = answers.iter().map(kind).collect();
    Ok(match kinds.as_slice() {
        [Some("string" | "zset"), Some(queue)] => format!("a {queue} for a queue"),
        [Some(kind), _] => format!("a {kind}, no lock"),
        // Locks do not need the right to ask for types, so it may be missing.
        _ => "of another type, no lock".to_owned(),
    })
}

fn kind(answer: &Value) -> Option<&str> {
    match answer {
        Value::SimpleString(kind) => Some(kind),
        _ => None,
    }
}

/// Sends commands in one write.
pub(crate) async fn ask(
    connection: &mut ConnectionHandle,
    commands: &[StoreCommand],
    answer_by: Moment,
) -> Result<Vec<StoreReply>, Fault> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for words in commands {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_slice());
        }
        pipeline.add_command(command);
    }
    let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    Ok(answers.into_iter().map(reply).collect())
}

pub(crate) fn reply(value: Value) -> StoreReply {
    let list = |values: Vec<Value>| StoreReply::List(values.into_iter().map(reply).collect());
    match value {
        Value::Nil => StoreReply::Nil,
        Value::Int(number) => StoreReply::Number(number),
        Value::BulkString(text) => StoreReply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            StoreReply::Text(text.into_bytes())
        }
        Value::Okay => StoreReply::Text(b"OK".to_vec()),
        Value::Array(values) | Value::Set(values) => list(values),
        Value::Map(pairs) => {
            list(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
        }
        Value::Attribute { data, .. } => reply(*data),
        Value::Double(number) => StoreReply::Text(number.to_string().into_bytes()),
        Value::Boolean(yes) => StoreReply::Number(i64::from(yes)),
        Value::ServerError(error) => StoreReply::Error(words(&RedisError::from(error))),
        _ => StoreReply::Nil,
    }
}

/// Returns the pattern for the names of a prefix's locks.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 8);
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "lock:*"
}

fn text(value: &Value) -> Option<String> {
    match value {
        // Names that are not UTF-8 are not ours.
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}
