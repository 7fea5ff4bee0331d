//! The commands `distlock ls`, `distlock inspect` and `distlock release`.

use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use serde_json::{Value, json};

use super::details::LockDetails;
use super::held::{HeldLock, table};
use super::pattern::matches_pattern;
use super::reader::{LockList, LockReader};
use crate::exit::{self, Failure};
use crate::messages;
use crate::store::StoreConfig;
use crate::text::{quoted, shown};

/// Lists the locks that are held.
pub(crate) async fn list(
    store: &StoreConfig,
    pattern: Option<&str>,
    limit: usize,
    as_json: bool,
) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let reader = LockReader::new(store, &manager)?;
    let is_wanted = |key: &str| pattern.is_none_or(|pattern| matches_pattern(pattern, key));
    let LockList { locks, has_more, missed } = reader.list(is_wanted, limit).await?;
    if as_json {
        messages::print_json(&locks.iter().map(HeldLock::json).collect::<Value>())?;
    } else if !locks.is_empty() {
        messages::print(&table(&locks))?;
    } else {
        messages::plain("no lock is held");
    }
    if has_more {
        let more = limit.max(1) * 10;
        messages::plain(&format!("there are more; --limit {more} lists more of them"));
    }
    for (node, why) in &missed {
        messages::plain(&format!("the locks of {} are missing: {}", shown(node), shown(why)));
    }
    Ok(if missed.is_empty() { exit::OK } else { exit::STORE })
}

/// Shows one lock.
pub(crate) async fn inspect(store: &StoreConfig, key: &str, as_json: bool) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let reader = LockReader::new(store, &manager)?;
    let Some(details) = LockDetails::read(&reader, key).await? else {
        if as_json {
            messages::print_json(&json!({ "key": key, "held": false }))?;
        } else {
            messages::print(&format!("{} is free\n", quoted(key)))?;
        }
        return Ok(exit::OK);
    };
    if as_json {
        messages::print_json(&details.json())?;
    } else {
        let lines: String = details.lines().iter().map(|line| format!("  {line}\n")).collect();
        messages::print(&format!("{} is held\n{lines}", quoted(key)))?;
    }
    Ok(exit::OK)
}

/// Takes a lock away from its holder.
pub(crate) async fn release(
    store: &StoreConfig,
    key: &str,
    force: bool,
    yes: bool,
) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let reader = LockReader::new(store, &manager)?;
    let Some((held, _)) = reader.read(key).await? else {
        messages::plain(&format!("{} is free", quoted(key)));
        return Ok(exit::NOTHING);
    };
    messages::plain(&held.sentence());
    if !force {
        return Err(Failure::usage(
            "nothing is done without --force: its holder goes on until it notices, and what it began is \
             not undone",
        ));
    }
    if !yes && io::stdin().is_terminal() && !is_confirmed() {
        messages::plain("nothing was done");
        return Ok(exit::NOTHING);
    }
    let was_held = manager.force_release(key).await?;
    // Lets the notification leave, so that the holder does not have to wait for its next renewal to fail.
    manager.close(Duration::from_millis(500)).await;
    messages::plain(&match was_held {
        true => format!("{} was taken away", quoted(key)),
        false => format!("{} was free by then", quoted(key)),
    });
    Ok(if was_held { exit::OK } else { exit::NOTHING })
}

fn is_confirmed() -> bool {
    messages::plain("take it away? [y/N]");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
