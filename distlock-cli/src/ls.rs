//! `distlock ls`: the locks that are held.

use serde_json::Value;

use crate::exit;
use crate::failure::Failure;
use crate::locks::held::{Held, table};
use crate::locks::pattern::fits;
use crate::locks::walk::{Found, Locks};
use crate::say;
use crate::store::Named;
use crate::text::shown;

pub(crate) async fn list(
    store: &Named,
    pattern: Option<&str>,
    limit: usize,
    as_json: bool,
) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    let is_wanted = |key: &str| pattern.is_none_or(|pattern| fits(pattern, key));
    let Found { held, more, missed } = locks.held(is_wanted, limit).await?;
    if as_json {
        say::print_json(&held.iter().map(Held::json).collect::<Value>())?;
    } else if !held.is_empty() {
        say::print(&table(&held))?;
    } else {
        say::plain("no lock is held");
    }
    if more {
        say::plain(&format!("there are more; --limit {} lists more of them", limit.max(1) * 10));
    }
    for (node, why) in &missed {
        say::plain(&format!("the locks of {} are missing: {}", shown(node), shown(why)));
    }
    Ok(if missed.is_empty() { exit::OK } else { exit::STORE })
}
