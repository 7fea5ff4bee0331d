//! `distlock ls` and `distlock inspect`: what is held, by whom.

use std::time::Duration;

use serde_json::{Value, json};

use crate::exit;
use crate::locks::{Held, Locks, fits};
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
        say::print_json(&held.iter().map(as_value).collect());
    } else if !held.is_empty() {
        say::print(&table(&held));
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
    let Some((held, waiting)) = locks.one_held(key).await? else {
        if as_json {
            say::print_json(&json!({ "key": key, "held": false }));
        } else {
            say::print(&format!("{} is free\n", say::quoted(key)));
        }
        return Ok(exit::OK);
    };
    if as_json {
        let mut json = as_value(&held);
        json["held"] = true.into();
        json["waiting"] = waiting.iter().map(|process| process.json()).collect();
        say::print_json(&json);
        return Ok(exit::OK);
    }
    let mut lines = format!(
        "{} is held\n  holder   {}\n  lease    {}\n",
        say::quoted(key),
        held.holder,
        lease(held.remaining)
    );
    for name in ["started", "v"] {
        if let Some(is) = held.holder.record.get(name) {
            lines += &format!("  {name:<8} {}\n", say::shown(is));
        }
    }
    lines += &format!("  waiting  {}\n", processes(waiting.len()));
    for (at, process) in waiting.iter().enumerate() {
        lines += &format!("  {:>7}. {process}\n", at + 1);
    }
    say::print(&lines);
    Ok(exit::OK)
}

/// One lock, for people.
pub(crate) fn sentence(held: &Held) -> String {
    format!(
        "{} is held by {}, for another {}; waiting: {}",
        say::quoted(&held.key),
        held.holder,
        lease(held.remaining),
        held.waiting
    )
}

/// One lock, for programs.
pub(crate) fn as_value(held: &Held) -> Value {
    json!({
        "key": held.key,
        "holder": held.holder.json(),
        "remaining_ms": held.remaining.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
        "waiting": held.waiting,
    })
}

/// Many, for people.
pub(crate) fn table(held: &[Held]) -> String {
    let row = |held: &Held| {
        let lease = lease(held.remaining);
        [say::shown(&held.key), held.holder.to_string(), lease, held.waiting.to_string()]
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

fn lease(rest: Option<Duration>) -> String {
    rest.map_or_else(|| "without end".to_owned(), rounded)
}

fn processes(count: usize) -> String {
    match count {
        0 => "nobody".to_owned(),
        1 => "1 process".to_owned(),
        _ => format!("{count} processes"),
    }
}
