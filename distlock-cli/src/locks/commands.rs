//! `distlock ls`: the locks that are held.

use serde_json::Value;

use crate::exit;
use crate::failure::Failure;
use crate::locks::held::{Held, table};
use crate::locks::pattern::fits;
use crate::locks::reader::{Found, Locks};
use crate::messages;
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
        messages::print_json(&held.iter().map(Held::json).collect::<Value>())?;
    } else if !held.is_empty() {
        messages::print(&table(&held))?;
    } else {
        messages::plain("no lock is held");
    }
    if more {
        messages::plain(&format!(
            "there are more; --limit {} lists more of them",
            limit.max(1) * 10
        ));
    }
    for (node, why) in &missed {
        messages::plain(&format!("the locks of {} are missing: {}", shown(node), shown(why)));
    }
    Ok(if missed.is_empty() { exit::OK } else { exit::STORE })
}
