//! Checks whether the user may run the commands that locks need: tries each of them on names that are not in use.

use super::client::{ServerClient, ServerInfo, command};
use super::finding::Finding;
use super::locking::scratch_key;
use crate::admin::{StoreCommand, StoreReply};
use crate::exit::describe;
use crate::store::StoreConfig;

/// A command to try, and its name in an ACL.
struct CommandTrial {
    right: &'static str,
    command: StoreCommand,
}

pub(super) async fn check(
    store: &StoreConfig,
    server: &ServerClient<'_>,
    info: &ServerInfo,
) -> Vec<Finding> {
    let key = scratch_key();
    let prefix = store.name_prefix();
    let (lock, queue) = (format!("{prefix}lock:{{{key}}}"), format!("{prefix}queue:{{{key}}}"));
    let channel = format!("{prefix}wake:{key}");
    let other = [
        trial("echo", &["ECHO", "doctor"]),
        trial("publish", &["PUBLISH", &channel, ""]),
        trial("pubsub|numsub", &["PUBSUB", "NUMSUB", &channel]),
        // The key does not exist.
        trial("pexpireat", &["PEXPIREAT", &queue, "1"]),
        trial("zremrangebyscore", &["ZREMRANGEBYSCORE", &queue, "1", "1"]),
        trial("client|info", &["CLIENT", "INFO"]),
        trial("client|kill", &["CLIENT", "KILL", "ID", "9223372036854775807"]),
        trial("info", &["INFO", "memory"]),
        trial("scan", &["SCAN", "0", "COUNT", "1"]),
    ];
    let mut missing = match denied(server, needed_trials(&lock, &queue)).await {
        Ok(missing) => missing,
        Err(finding) => return vec![finding],
    };
    if !missing.contains(&"pexpire") && !missing.contains(&"del") {
        let last = [
            trial("zadd", &["ZADD", &queue, "1", "m"]),
            trial("pexpire", &["PEXPIRE", &queue, "2000"]),
            trial("del", &["DEL", &queue]),
        ];
        missing.extend(denied(server, last).await.unwrap_or_default());
    }
    let mut spare = denied(server, other).await.unwrap_or_default();
    if info.get("cluster_enabled") == Some("1") {
        let of_cluster = [
            trial("cluster|slots", &["CLUSTER", "SLOTS"]),
            trial("spublish", &["SPUBLISH", &channel, ""]),
        ];
        spare.extend(denied(server, of_cluster).await.unwrap_or_default());
    }
    vec![needed(&missing), useful(&spare)]
}

/// Returns the commands that locks need, except those that depend on others.
fn needed_trials(lock: &str, queue: &str) -> [CommandTrial; 16] {
    // These keys expire if the user may not delete them.
    [
        trial("set", &["SET", lock, "doctor", "NX", "PX", "2000"]),
        trial("get", &["GET", lock]),
        trial("pttl", &["PTTL", lock]),
        trial("pexpire", &["PEXPIRE", lock, "2000"]),
        trial("exists", &["EXISTS", lock]),
        // An allowed INCR fails, because the value is not a number.
        trial("incr", &["INCR", lock]),
        trial("time", &["TIME"]),
        trial("eval", &["EVAL", "return 1", "0"]),
        trial("evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
        trial("zrange", &["ZRANGE", queue, "0", "-1"]),
        trial("zrank", &["ZRANK", queue, "m"]),
        trial("zcard", &["ZCARD", queue]),
        trial("zscore", &["ZSCORE", queue, "m"]),
        trial("zrem", &["ZREM", queue, "m"]),
        trial("zpopmin", &["ZPOPMIN", queue]),
        trial("del", &["DEL", lock, queue]),
    ]
}

fn trial(right: &'static str, words: &[&str]) -> CommandTrial {
    CommandTrial { right, command: command(words) }
}

/// Returns the commands that the user may not run, or that the server does not know.
async fn denied<const N: usize>(
    server: &ServerClient<'_>,
    trials: [CommandTrial; N],
) -> Result<Vec<&'static str>, Finding> {
    let commands = trials.iter().map(|trial| trial.command.clone()).collect();
    let replies = server.send_all(commands).await.map_err(|error| {
        Finding::fail("rights", describe(&error), "run the doctor again when the server answers")
    })?;
    let is_denied = |reply: &StoreReply| match reply {
        StoreReply::Error(text) => {
            ["NOPERM", "no permissions", "unknown command", "unknown subcommand"]
                .iter()
                .any(|words| text.contains(words))
        }
        _ => false,
    };
    let tried = trials.iter().zip(&replies);
    Ok(tried.filter(|(_, reply)| is_denied(reply)).map(|(trial, _)| trial.right).collect())
}

/// Reports the commands that locks need.
fn needed(missing: &[&str]) -> Finding {
    const CHECK: &str = "rights";
    match missing {
        [] => Finding::ok(CHECK, "all that locks need"),
        _ => Finding::fail(
            CHECK,
            format!("this user may not use {} on the names of locks", missing.join(", ")),
            format!("ACL SETUSER … {}, and ~PREFIX:* for the names", acl_rules(missing)),
        ),
    }
}

/// Reports the commands without which locks work, but not as well.
fn useful(missing: &[&str]) -> Finding {
    const CHECK: &str = "more rights";
    let loss = |right: &&str| match *right {
        "echo" => "echo: mixed-up answers of a broken proxy go unnoticed",
        "publish" | "pubsub|numsub" => {
            "publish, pubsub|numsub: waiters poll once a second instead of being notified"
        }
        "spublish" => "spublish: waiters poll instead of being notified",
        "cluster|slots" => "cluster|slots: the node of a lock is not found",
        "pexpireat" | "zremrangebyscore" => {
            "pexpireat, zremrangebyscore: read locks and permits are refused"
        }
        "client|info" | "client|kill" => {
            "client|info, client|kill: releases are repeated where a connection broke"
        }
        "info" => "info: there is no warning if the server may evict locks",
        _ => "scan: `ls`, `top` and parts of this check see nothing",
    };
    match missing {
        [] => Finding::ok(CHECK, "also what is useful"),
        _ => {
            let mut losses: Vec<&str> = missing.iter().map(loss).collect();
            losses.dedup();
            let text = format!("this user lacks {}", losses.join("; "));
            Finding::warn(CHECK, text, format!("ACL SETUSER … {}", acl_rules(missing)))
        }
    }
}

fn acl_rules(missing: &[&str]) -> String {
    let rights: Vec<String> = missing.iter().map(|right| format!("+{right}")).collect();
    rights.join(" ")
}
