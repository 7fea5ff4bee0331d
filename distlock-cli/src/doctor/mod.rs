//! `distlock doctor`: whether a store is fit for locks.
//!
//! Some checks are of the store as a whole, and do with any; the others are of each of its servers.

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

use self::client::{Info, Server};
use self::finding::{Finding, Level, merged};
use crate::exit;
use crate::failure::{Failure, describe};
use crate::messages;
use crate::store::Named;

/// In this order they are shown.
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

/// Prints what was found; the exit code is that of the worst.
pub(crate) async fn examine(store: &Named, as_json: bool) -> Result<u8, Failure> {
    if !store.is_shared() {
        return Err(Failure::usage("memory:// is no store that could be looked at; name a server"));
    }
    let findings = findings(store).await?;
    if as_json {
        messages::print_json(&findings.iter().map(Finding::json).collect::<Value>())?;
    } else {
        messages::print(&findings.iter().map(Finding::lines).collect::<String>())?;
    }
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Fail) => exit::BROKEN,
        Some(Level::Warn) => exit::NOTHING,
        _ => exit::OK,
    })
}

async fn findings(store: &Named) -> Result<Vec<Finding>, Failure> {
    let manager = match locking::manager(store).await {
        Ok(manager) => manager,
        Err(error) if exit::of(&error) == exit::USAGE => return Err(error.into()),
        Err(error) => {
            return Ok(vec![Finding::fail("reachable", describe(&error), server::mend(&error))]);
        }
    };
    let mut findings =
        vec![Finding::ok("reachable", "it answers, and takes what a lock needs first")];
    // Before anything that has processes come and go: it counts them, and this one is among them then.
    findings.push(locking::told(&manager).await);
    findings.extend(of_servers(store, &manager).await);
    findings.extend(sentinels::check(&manager).await);
    findings.push(timing::latency(&manager).await);
    findings.push(locking::check(store, &manager).await);
    let place = |finding: &Finding| CHECKS.iter().position(|check| *check == finding.check);
    findings.sort_by_key(place);
    Ok(findings)
}

/// What each of its servers comes to.
async fn of_servers(store: &Named, manager: &LockManager) -> Vec<Finding> {
    let servers = Server::all(manager);
    if servers.is_empty() {
        return locking::contents(store, manager).await.into_iter().collect();
    }
    let (mut findings, mut away) = (Vec::new(), Vec::new());
    for server in &servers {
        match Info::ask(server).await {
            Ok(info) => {
                findings.push((server.node.clone(), of_server(store, server, &info).await));
            }
            Err(error) => away.push(unreachable(store, server, &error)),
        }
    }
    away.extend(merged(findings));
    away
}

fn unreachable(store: &Named, server: &Server<'_>, error: &LockError) -> Finding {
    let node = server.node.as_deref().unwrap_or("the server");
    let text = format!("{node}: {}", describe(error));
    // Locks on a quorum do without a minority.
    match store.is_quorum() {
        true => Finding::warn("reachable", text, server::mend(error)),
        false => Finding::fail("reachable", text, server::mend(error)),
    }
}

async fn of_server(store: &Named, server: &Server<'_>, info: &Info) -> Vec<Finding> {
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
