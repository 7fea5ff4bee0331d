//! `distlock doctor`: whether a store is fit for locks.

mod finding;
mod keys;
mod locking;
mod rights;
mod server;
mod timing;

use distlock::LockManager;
use serde_json::Value;

use self::finding::{Finding, Level};
use crate::exit;
use crate::locks::{command, text};
use crate::say;
use crate::store::{Failure, Named, describe};

/// Prints what was found; the exit code is that of the worst.
pub(crate) async fn examine(store: &Named, as_json: bool) -> Result<u8, Failure> {
    if !store.is_shared() {
        return Err(Failure::usage("memory:// is no store that could be looked at; name a server"));
    }
    let findings = findings(store).await?;
    if as_json {
        say::print_json(&findings.iter().map(Finding::json).collect::<Value>())?;
    } else {
        say::print(&findings.iter().map(Finding::lines).collect::<String>())?;
    }
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Fail) => exit::BROKEN,
        Some(Level::Warn) => exit::NOTHING,
        _ => exit::OK,
    })
}

async fn findings(store: &Named) -> Result<Vec<Finding>, Failure> {
    let manager = match store.builder().connect().await {
        Ok(manager) => manager,
        Err(error) if exit::of(&error) == exit::USAGE => return Err(error.into()),
        Err(error) => {
            return Ok(vec![Finding::fail("reachable", describe(&error), server::mend(&error))]);
        }
    };
    let info = Info::ask(&manager).await;
    let mut findings =
        vec![Finding::ok("reachable", "it answers, and takes what a lock needs first")];
    findings.push(server::version(&info));
    findings.push(timing::latency(&manager).await);
    findings.push(timing::clock(&manager).await);
    findings.extend(rights::check(store, &manager).await);
    // Before anything that has processes come and go: it counts them, and this one is among them then.
    findings.push(locking::told(&manager).await);
    let contents = keys::check(store, &manager).await;
    findings.push(locking::check(store, &manager).await);
    findings.push(server::eviction(&info));
    findings.push(server::persistence(&info, server::fsync(&manager).await.as_deref()));
    findings.extend(server::replicas(&info, &manager).await);
    findings.extend(contents);
    Ok(findings)
}

/// What a server says of itself, as far as it does.
struct Info(Option<String>);

impl Info {
    async fn ask(manager: &LockManager) -> Self {
        let answers = manager.ask_store(vec![command(&["INFO"])]).await;
        Self(answers.ok().and_then(|answers| answers.first().and_then(text)))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let lines = self.0.as_deref()?.lines();
        let mut fields = lines.filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}
