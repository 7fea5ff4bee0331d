//! Checks of the server's version and configuration.

use distlock::{BackendKind, LockError};

use super::client::{ServerClient, ServerInfo, text};
use super::finding::Finding;
use crate::admin::StoreReply;

/// The oldest version with all commands that the scripts need.
const OLDEST_VERSION: (u64, u64) = (6, 2);

/// Advises how to reach a store that cannot be used.
pub(super) fn hint(error: &LockError) -> &'static str {
    let LockError::Backend { kind, .. } = error else { return "see the manual of the library" };
    match kind {
        BackendKind::Unreachable => {
            "check host and port, and that nothing between here and there blocks it"
        }
        BackendKind::TimedOut => {
            "check that the server is not stopped or overloaded, and what is between"
        }
        BackendKind::Refused => "check user and password in the URL, and the user's ACL",
        BackendKind::OutOfMemory => "raise maxmemory, or remove what fills it",
        BackendKind::ReadOnly => "name the primary; a replica takes no locks",
        _ => "see what the server says",
    }
}

pub(super) fn version(info: &ServerInfo) -> Finding {
    const CHECK: &str = "version";
    let valkey = info.get("valkey_version");
    let Some(version) = valkey.or_else(|| info.get("redis_version")) else {
        return Finding::unknown(CHECK, "the server does not say (INFO is not allowed here)");
    };
    let name = if valkey.is_some() { "Valkey" } else { "Redis" };
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match number >= OLDEST_VERSION {
        true => Finding::ok(CHECK, format!("{name} {version}")),
        false => Finding::fail(
            CHECK,
            format!("{name} {version} lacks commands that locks need"),
            "upgrade to 6.2 or later",
        ),
    }
}

pub(super) fn eviction(info: &ServerInfo) -> Finding {
    const CHECK: &str = "eviction";
    let Some(policy) = info.get("maxmemory_policy") else {
        return Finding::unknown(CHECK, "the server does not say whether it throws keys away");
    };
    let hint = "set maxmemory-policy to noeviction, or give locks a server of their own";
    match (policy, info.number("maxmemory")) {
        ("noeviction", _) => Finding::ok(CHECK, "none: a full server refuses new keys"),
        (_, Some(0)) => Finding::warn(
            CHECK,
            format!(
                "{policy}: once a maxmemory is set it throws locks away, and two hold what one took"
            ),
            hint,
        ),
        _ => Finding::fail(
            CHECK,
            format!("{policy}: a full server throws locks away, and two hold what one took"),
            hint,
        ),
    }
}

/// Reads how often the server writes the append-only file to the disk.
pub(super) async fn fsync(server: &ServerClient<'_>) -> Option<String> {
    match server.send(&["CONFIG", "GET", "appendfsync"]).await? {
        StoreReply::List(pair) => pair.get(1).and_then(text),
        _ => None,
    }
}

/// Checks whether locks survive a restart. `fsync` is the value of `appendfsync`.
pub(super) fn persistence(info: &ServerInfo, fsync: Option<&str>) -> Finding {
    const CHECK: &str = "persistence";
    match info.get("aof_enabled") {
        None => Finding::unknown(CHECK, "the server does not say"),
        Some("1") => match info.get("aof_last_write_status") {
            Some("ok") | None => match fsync {
                Some("always") => {
                    Finding::ok(CHECK, "appendonly, appendfsync always: a restart forgets no lock")
                }
                Some("no") => Finding::warn(
                    CHECK,
                    "appendonly, appendfsync no: a crash of the machine forgets the locks of half a minute",
                    "set appendfsync to always, or to everysec at least",
                ),
                Some(fsync) => Finding::ok(
                    CHECK,
                    format!(
                        "appendonly, appendfsync {fsync}: locks are there again after a restart; a crash of \
                         the machine forgets those of the last second"
                    ),
                ),
                None => Finding::ok(
                    CHECK,
                    "appendonly: locks are there again after a restart; how often it is written to the disk \
                     the server does not say",
                ),
            },
            Some(_) => Finding::fail(
                CHECK,
                "appendonly, but the last write to it failed",
                "see the server's log: its disk is full or broken",
            ),
        },
        Some(_) => Finding::warn(
            CHECK,
            "no appendonly file: a restart forgets the locks that are held, and others can take them",
            "set appendonly yes (with appendfsync always nothing is forgotten; with everysec a second), or have \
             what locks protect check fencing tokens",
        ),
    }
}

/// Checks whether the replicas are in step, because a failover forgets locks otherwise.
pub(super) async fn replicas(info: &ServerInfo, server: &ServerClient<'_>) -> Option<Finding> {
    const CHECK: &str = "replicas";
    let count = info.number("connected_slaves")?;
    if count == 0 {
        return None;
    }
    let reply = server.send(&["WAIT", "1", "200"]).await?;
    let hint = "see that the replicas are in step; until then a fail-over forgets locks";
    Some(match reply {
        StoreReply::Number(0) => Finding::warn(
            CHECK,
            format!("{count}, of which none confirmed a write in 200 ms"),
            hint,
        ),
        StoreReply::Number(confirmed) => Finding::ok(
            CHECK,
            format!(
                "{count}, of which {confirmed} confirmed a write; a fail-over may forget the latest locks"
            ),
        ),
        reply => {
            let why = text(&reply).unwrap_or_else(|| "WAIT is not allowed".to_owned());
            Finding::unknown(
                CHECK,
                format!("{count}; whether they are in step is not known: {why}"),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn old_versions_fail() {
        for (info, severity) in [
            ("redis_version:6.0.16\r\n", Severity::Fail),
            ("redis_version:6.2.14\r\n", Severity::Ok),
            ("redis_version:10.0.0\r\n", Severity::Ok),
            ("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", Severity::Ok),
            ("", Severity::Unknown),
        ] {
            assert_eq!(version(&ServerInfo(Some(info.to_owned()))).severity, severity, "{info}");
        }
    }

    #[test]
    fn an_appendonly_file_that_cannot_be_written_fails() {
        let info = ServerInfo(Some("aof_enabled:1\r\naof_last_write_status:err\r\n".to_owned()));
        assert_eq!(persistence(&info, Some("always")).severity, Severity::Fail);
        let info = ServerInfo(Some("aof_enabled:1\r\naof_last_write_status:ok\r\n".to_owned()));
        for (fsync, severity) in [
            (Some("always"), Severity::Ok),
            (Some("everysec"), Severity::Ok),
            (Some("no"), Severity::Warn),
            (None, Severity::Ok),
        ] {
            assert_eq!(persistence(&info, fsync).severity, severity, "{fsync:?}");
        }
    }
}
