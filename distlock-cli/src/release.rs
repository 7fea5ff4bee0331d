//! `distlock release`: takes a lock away.

use std::io::{self, BufRead, IsTerminal};

use crate::exit;
use crate::failure::Failure;
use crate::locks::reader::Locks;
use crate::messages;
use crate::store::Named;
use crate::text::quoted;

pub(crate) async fn release(
    store: &Named,
    key: &str,
    force: bool,
    yes: bool,
) -> Result<u8, Failure> {
    let manager = store.connect().await?;
    let locks = Locks::of(store, &manager)?;
    let Some((held, _)) = locks.one_held(key).await? else {
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
    if !yes && io::stdin().is_terminal() && !agreed() {
        messages::plain("nothing was done");
        return Ok(exit::NOTHING);
    }
    let was_held = manager.force_release(key).await?;
    // So that the holder is notified at once, and does not find out at its next renewal.
    manager.close(std::time::Duration::from_millis(500)).await;
    messages::plain(&match was_held {
        true => format!("{} was taken away", quoted(key)),
        false => format!("{} was free by then", quoted(key)),
    });
    Ok(if was_held { exit::OK } else { exit::NOTHING })
}

fn agreed() -> bool {
    messages::plain("take it away? [y/N]");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
