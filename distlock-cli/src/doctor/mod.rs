//! `distlock doctor`: checks whether a store is fit for locks.
//!
//! Some checks concern the store as a whole and work with any store. The others examine each of its servers.

mod client;
mod cluster;
mod finding;
mod keys;
mod locking;
mod rights;
mod sentinels;
mod server;
mod timing;

use distlock::{LockError, LockManager};
use serde_json::Value;

use self::client::{ServerClient, ServerInfo};
use self::finding::{Finding, Severity, merged};
use crate::exit::{self, Failure, describe};
use crate::messages;
use crate::store::StoreConfig;

/// All checks, in the order of the output.
const CHECKS: [&str; 16] = [
    "reachable",
    "version",
    "latency",
    "clock",
    "rights",
    "more rights",
    "pub/sub",
    "locks",
    "eviction",
    "persistence",
    "slots",
    "replicas",
    "sentinels",
    "fence",
    "expiry",
    "contents",
];

/// Prints the findings. The worst one determines the exit code.
pub(crate) async fn examine(store: &StoreConfig, as_json: bool) -> Result<u8, Failure> {
    if !store.is_shared() {
        return Err(Failure::usage("memory:// is no store that could be looked at; name a server"));
    }
    let findings = findings(store).await?;
    if as_json {
        messages::print_json(&findings.iter().map(Finding::json).collect::<Value>())?;
    } else {
        messages::print(&findings.iter().map(Finding::lines).collect::<String>())?;
    }
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fail) => exit::BROKEN,
        Some(Severity::Warn) => exit::NOTHING,
        _ => exit::OK,
    })
}

async fn findings(store: &StoreConfig) -> Result<Vec<Finding>, Failure> {
    let manager = match locking::manager(store).await {
        Ok(manager) => manager,
        Err(error) if exit::of(&error) == exit::USAGE => return Err(error.into()),
        Err(error) => {
            return Ok(vec![Finding::fail("reachable", describe(&error), server::hint(&error))]);
        }
    };
    let mut findings =
        vec![Finding::ok("reachable", "it answers, and takes what a lock needs first")];
    // Before the checks that start other processes: it counts processes, and expects only this one.
    findings.push(locking::notifications(&manager).await);
    findings.extend(of_servers(store, &manager).await);
    findings.extend(sentinels::check(&manager).await);
    findings.push(timing::latency(&manager).await);
    findings.push(locking::check(store, &manager).await);
    let position = |finding: &Finding| CHECKS.iter().position(|check| *check == finding.check);
    findings.sort_by_key(position);
    Ok(findings)
}

/// Examines each server.
async fn of_servers(store: &StoreConfig, manager: &LockManager) -> Vec<Finding> {
    let servers = ServerClient::all(manager);
    if servers.is_empty() {
        return locking::contents(store, manager).await.into_iter().collect();
    }
    let (mut findings, mut failures) = (Vec::new(), Vec::new());
    for server in &servers {
        match ServerInfo::read(server).await {
            Ok(info) => {
                findings.push((server.node.clone(), of_server(store, server, &info).await));
            }
            Err(error) => failures.push(unreachable(store, server, &error)),
        }
    }
    failures.extend(merged(findings));
    failures
}

fn unreachable(store: &StoreConfig, server: &ServerClient<'_>, error: &LockError) -> Finding {
    let node = server.node.as_deref().unwrap_or("the server");
    let text = format!("{node}: {}", describe(error));
    // A quorum tolerates the loss of a minority.
    match store.is_quorum() {
        true => Finding::warn("reachable", text, server::hint(error)),
        false => Finding::fail("reachable", text, server::hint(error)),
    }
}

async fn of_server(
    store: &StoreConfig,
    server: &ServerClient<'_>,
    info: &ServerInfo,
) -> Vec<Finding> {
    let mut findings = vec![server::version(info), timing::clock(server).await];
    findings.extend(rights::check(store, server, info).await);
    findings.push(server::eviction(info));
    findings.push(server::persistence(info, server::fsync(server).await.as_deref()));
    findings.extend(cluster::slots(server, info).await);
    findings.extend(server::replicas(info, server).await);
    findings.extend(cluster::without_replica(info));
    findings.extend(keys::check(store, server, info).await);
    findings
}
