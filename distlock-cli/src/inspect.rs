//! `distlock inspect`: one lock.

use serde_json::json;

use crate::exit;
use crate::failure::Failure;
use crate::locks::details::One;
use crate::locks::reader::Locks;
use crate::messages;
use crate::store::Named;
use crate::text::quoted;

pub(crate) async fn inspect(store: &Named, key: &str, as_json: bool) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    let Some(one) = One::look(&locks, key).await? else {
        if as_json {
            messages::print_json(&json!({ "key": key, "held": false }))?;
        } else {
            messages::print(&format!("{} is free\n", quoted(key)))?;
        }
        return Ok(exit::OK);
    };
    if as_json {
        messages::print_json(&one.json())?;
    } else {
        let lines: String = one.lines().iter().map(|line| format!("  {line}\n")).collect();
        messages::print(&format!("{} is held\n{lines}", quoted(key)))?;
    }
    Ok(exit::OK)
}
