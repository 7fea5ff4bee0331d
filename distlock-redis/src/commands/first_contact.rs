//! The first contact with the servers, and the trial of all scripts.
//!
//! Wrong addresses and missing permissions are reported here, and not when the first lock is acquired. [`run`] calls
//! each script once at each node, with keys of its own that it removes afterwards.

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::store::{BackendKind, Fault};
use redis::{RedisError, Value};
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::commands::server::Server;
use crate::connection::error::{fault, is_missing_script};
use crate::connection::live::ConnectionHandle;
use crate::routing::Routing;
use crate::script::{Arg, Script, ScriptPair, Wakes};
use crate::slots::Slot;

/// How long the keys of a trial last, in ms, if its last scripts never run.
const LASTS: u64 = 1000;
/// Part of the error of a server that checks that each command's keys are in `KEYS`.
const CHECKS_KEYS: &str = "KEYS array";
const SWITCH_OFF: &str = "switch the check of scripts off (`script_check_enable` = 0 where the server has that \
    setting), or connect to the server or the cluster itself and not to its proxy";
const ALLOW: &str = "allow it in the server's or the proxy's settings, or connect to the server itself and not to its \
    proxy";
/// The keys and tokens of one trial. They are unique, so that no other trial and no lock meets them.
struct TrialNames {
    lock: LockName,
    fence: String,
    alone: String,
    reader: String,
    /// The token that the lock is downgraded to.
    next: String,
    /// The last argument of scripts that send messages in a cluster.
    tag: Option<String>,
}

/// One call of one script.
struct TrialCall<'a> {
    name: &'static str,
    script: Script,
    keys: Vec<Arg<'a>>,
    args: Vec<Arg<'a>>,
}

/// Raises a counter on every connection for commands, and tries every script once. In a cluster it uses one connection,
/// to the node that has the slot of an unused lock.
pub(crate) async fn first_contact(server: &Server, answer_by: Moment) -> Result<(), Fault> {
    let unused = server.unused();
    match &server.routing {
        Routing::One(node) => {
            for link in node.pool.all() {
                let mut connection = link.first(answer_by).await?;
                raise(server, unused.as_ref(), &mut connection, answer_by).await?;
            }
        }
        Routing::Cluster(cluster) => {
            cluster.first(answer_by).await?;
            let Some(unused) = &unused else { return Ok(()) };
            let slot = Slot::of(unused.stored());
            if let Some(node) = cluster.owner(slot) {
                let first = node.pool.commands(unused.stored()).first(answer_by).await;
                if let Err(fault) = first.map(drop) {
                    return accept_missing_shard(cluster, fault, answer_by).await;
                }
            }
            let mut route = server.routing.route(&server.alarms, unused.stored(), answer_by);
            loop {
                let mut connection = route.commands().await?;
                let mut raised = raise(server, Some(unused), &mut connection, answer_by).await;
                if !route.should_retry(&mut connection, &mut raised) {
                    return raised;
                }
            }
        }
    }
    Ok(())
}

/// Accepts a shard that is down if another node of the cluster can be reached.
async fn accept_missing_shard(
    cluster: &Cluster,
    fault: Fault,
    answer_by: Moment,
) -> Result<(), Fault> {
    match fault.kind {
        BackendKind::Unreachable | BackendKind::TimedOut if fault.passing => {
            cluster.reach_any(answer_by).await.map(drop).map_err(|_| fault)
        }
        _ => Err(fault),
    }
}

async fn raise(
    server: &Server,
    unused: Option<&LockName>,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<(), Fault> {
    let fences = &server.fences;
    let Some(lock) = unused else { return Ok(()) };
    let counter = &*fences.of(lock);
    // With the names of a lock that is never acquired, because an ACL may allow other names only.
    let mut raised = fences.raise(counter, unused, connection, answer_by).await;
    if raised.as_ref().is_err_and(|fault| fault.kind == BackendKind::Refused) {
        let again = fences.raise(counter, None, connection, answer_by).await;
        // If the user would have to sign in, the connection is dropped by then, and the first error says more.
        if again.as_ref().err().is_none_or(|fault| fault.kind == BackendKind::Refused) {
            raised = again;
        }
    }
    match raised {
        // A server that is out of memory can still free and renew. Acquires will report the error.
        Err(fault) if fault.kind != BackendKind::OutOfMemory => Err(fault),
        _ => run(server, lock, connection, answer_by).await,
    }
}

impl TrialNames {
    /// Makes names in the slot of the lock `near`, which this node serves.
    fn near(server: &Server, near: &LockName) -> Option<Self> {
        let prefix = &*server.record.prefix;
        let id = Uuid::new_v4().simple();
        let (lock, fence) = match server.routing.cluster() {
            None => {
                (format!("{prefix}lock:{{trial-{id}}}"), format!("{prefix}fence:{{trial-{id}}}"))
            }
            Some(_) => {
                let tag = Slot::of(near.stored()).tag();
                (
                    format!("{prefix}lock::{{{tag}}}trial-{id}"),
                    format!("{prefix}fence:{{{tag}}}trial-{id}"),
                )
            }
        };
        let lock = LockName::of_stored(prefix, &lock)?;
        let tag = server.tag(&lock);
        // Mode `n`: the token has no subscriber, and gets the lock anyway.
        let token = |number, limit| format!("{id}.{number}.{LASTS}n{limit}");
        let (alone, reader, next) = (token(1, ""), token(2, "r"), token(3, "r"));
        Some(Self { lock, fence, alone, reader, next, tag })
    }

    /// Calls every script so that it does something. The last calls remove what the first ones stored.
    fn calls(&self) -> Vec<TrialCall<'_>> {
        use Arg::{Number, Text};
        let Self { lock, fence, alone, reader, next, tag } = self;
        let wakes = if tag.is_some() { Wakes::Shards } else { Wakes::Channels };
        let (acquire, share) = ScriptPair::acquire(wakes).both();
        let (renew, prolong) = ScriptPair::renew().both();
        let (free_lock, leave_lock) = ScriptPair::free().both();
        let (release, leave) = ScriptPair::release(wakes).both();
        let keys = [Text(lock.stored()), Arg::Queue(lock), Text(fence)];
        let [alone, reader, next] = [alone, reader, next].map(|token| Text(token));
        let (ttl, none, one) = (Number(LASTS), Number(0), Number(1));
        let mut calls = vec![
            TrialCall::new("acquire", acquire, &keys, &[alone, ttl, none, ttl, none]),
            TrialCall::new("share", share, &keys, &[reader, ttl, one, ttl, none]),
            TrialCall::new("renew", renew, &keys, &[alone, ttl, one, one]),
            TrialCall::new("downgrade", Script::downgrade(wakes), &keys, &[next, ttl, alone, none]),
            TrialCall::new("prolong", prolong, &keys, &[next, ttl, one, one]),
            TrialCall::new("leave", leave, &keys[..2], &[next]),
            TrialCall::new("release", release, &keys[..2], &[alone]),
        ];
        if let Some(tag) = tag {
            let sends = |call: &&mut TrialCall<'_>| !["renew", "prolong"].contains(&call.name);
            calls.iter_mut().filter(sends).for_each(|call| call.args.push(Text(tag)));
        }
        // They must come before the calls that release the rest.
        calls.splice(
            5..5,
            [
                TrialCall::new("offer", Script::offer(), &keys[..2], &[next, one]),
                TrialCall::new("free_lock", free_lock, &keys[..1], &[alone]),
                TrialCall::new("leave_lock", leave_lock, &keys[..1], &[reader]),
            ],
        );
        calls
    }
}

impl<'a> TrialCall<'a> {
    fn new(name: &'static str, script: Script, keys: &[Arg<'a>], args: &[Arg<'a>]) -> Self {
        Self { name, script, keys: keys.to_vec(), args: args.to_vec() }
    }
}

/// Runs every script once at this node, unless that was done before, in the slot of a lock that the node
/// serves.
///
/// Fails if the server refuses a script for good. Passing failures and missing rights are left to the first
/// lock that meets them, because many users need fewer rights than all scripts together.
pub(crate) async fn run(
    server: &Server,
    near: &LockName,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<(), Fault> {
    if connection.asking || server.trials.include(&connection.live.node) {
        return Ok(());
    }
    let Some(names) = TrialNames::near(server, near) else { return Ok(()) };
    let calls = names.calls();
    let mut answers = send(&calls, Script::by_hash, &names, connection, answer_by).await?;
    if answers.iter().any(|answer| error_of(answer).is_some_and(|e| is_missing_script(&e))) {
        answers = send(&calls, Script::by_text, &names, connection, answer_by).await?;
    }
    if connection.redirect.take().is_some() {
        // The slot has moved.
        return Ok(());
    }
    let mut all_ran = true;
    for (call, answer) in calls.iter().zip(&answers) {
        let Some(error) = error_of(answer) else { continue };
        let fault = fault(&error);
        if !fault.passing && fault.kind != BackendKind::Refused {
            return Err(refused(fault, call.name));
        }
        all_ran &= fault.kind == BackendKind::Refused;
    }
    if all_ran {
        server.trials.add(&connection.live.node);
    }
    Ok(())
}

/// Sends all calls in one write, and removes the counter afterwards.
async fn send(
    calls: &[TrialCall<'_>],
    how: fn(&Script, &[Arg<'_>], &[Arg<'_>]) -> redis::Cmd,
    names: &TrialNames,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Vec<Value>, Fault> {
    let mut pipeline = redis::Pipeline::with_capacity(calls.len() + 1);
    for TrialCall { script, keys, args, .. } in calls {
        pipeline.add_command(how(script, keys, args));
    }
    pipeline.cmd("DEL").arg(&names.fence);
    connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await
}

fn error_of(answer: &Value) -> Option<RedisError> {
    match answer {
        Value::ServerError(error) => Some(RedisError::from(error.clone())),
        _ => None,
    }
}

fn refused(fault: Fault, script: &str) -> Fault {
    let says = fault.to_string();
    let what_helps = if says.contains(CHECKS_KEYS) { SWITCH_OFF } else { ALLOW };
    fault.and(&format!(": the server refuses the script `{script}`, without which locks are never freed; {what_helps}"))
}
