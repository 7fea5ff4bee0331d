//! `distlock ls` and `distlock inspect`: what is held, by whom.

use std::time::Duration;

use serde_json::{Value, json};

use crate::exit;
use crate::locks::{Held, Locks, Process, fits, several};
use crate::one::One;
use crate::say;
use crate::store::{Failure, Named, rounded};

/// `distlock ls`.
pub(crate) async fn list(
    store: &Named,
    pattern: Option<&str>,
    limit: usize,
    as_json: bool,
) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    let is_wanted = |key: &str| pattern.is_none_or(|pattern| fits(pattern, key));
    let (held, more) = locks.held(is_wanted, limit).await?;
    if as_json {
        say::print_json(&held.iter().map(as_value).collect())?;
    } else if !held.is_empty() {
        say::print(&table(&held))?;
    } else {
        say::plain("no lock is held");
    }
    if more {
        say::plain(&format!("there are more; --limit {} lists more of them", limit.max(1) * 10));
    }
    Ok(exit::OK)
}

/// `distlock inspect`.
pub(crate) async fn inspect(store: &Named, key: &str, as_json: bool) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    let Some(one) = One::look(&locks, key).await? else {
        if as_json {
            say::print_json(&json!({ "key": key, "held": false }))?;
        } else {
            say::print(&format!("{} is free\n", say::quoted(key)))?;
        }
        return Ok(exit::OK);
    };
    if as_json {
        say::print_json(&one.json())?;
    } else {
        let lines: String = one.lines().iter().map(|line| format!("  {line}\n")).collect();
        say::print(&format!("{} is held\n{lines}", say::quoted(key)))?;
    }
    Ok(exit::OK)
}

/// One lock, for people.
pub(crate) fn sentence(held: &Held) -> String {
    format!(
        "{} is held by {}, for another {}; waiting: {}",
        say::quoted(&held.key),
        several(&held.holders),
        lease(held.remaining),
        held.waiting
    )
}

/// One lock, for programs.
pub(crate) fn as_value(held: &Held) -> Value {
    json!({
        "key": held.key,
        "holder": held.holders.first().map(Process::json),
        "holders": held.holders.iter().map(Process::json).collect::<Value>(),
        "alone": held.alone,
        "remaining_ms": held.remaining.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
        "waiting": held.waiting,
    })
}

/// Many, for people.
pub(crate) fn table(held: &[Held]) -> String {
    let row = |held: &Held| {
        let lease = lease(held.remaining);
        [say::shown(&held.key), several(&held.holders), lease, held.waiting.to_string()]
    };
    let heads = ["KEY", "HOLDER", "LEASE", "WAITING"].map(str::to_owned);
    let rows: Vec<[String; 4]> = [heads].into_iter().chain(held.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>() + &row[3] + "\n"
    };
    rows.iter().map(line).collect()
}

pub(crate) fn lease(rest: Option<Duration>) -> String {
    rest.map_or_else(|| "without end".to_owned(), rounded)
}
