//! Reading the holders and waiters of a lock, the names of locks, and the records of processes.

use std::collections::HashMap;
use std::time::Duration;

use crate::ensemble::Ensemble;
use crate::fault::Fault;
use crate::nodes;
use crate::wire::ZooKeeperError;

/// The holders and waiters of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The holders' tokens, and how long each holds the lock after its process has died.
    pub holders: Vec<(String, Duration)>,
    /// The waiters' tokens in order.
    pub waiters: Vec<String>,
}

/// Returns the holders and waiters of a lock.
pub(crate) async fn inspect(ensemble: &Ensemble, name: &str) -> Result<Held, Fault> {
    let directory = ensemble.directory(name)?;
    let live = ensemble.waiting.live().await?;
    let children = ensemble.children(&live, &directory).await?;
    let mut held = Held::default();
    for holder in children.holders {
        match live.client.data(&format!("{directory}/{}", holder.node)).await {
            Ok((data, _)) => held.holders.push((holder.token, nodes::ttl_of(data))),
            Err(ZooKeeperError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    held.holders.sort_by_key(|(_, ttl)| *ttl);
    held.waiters = children.queue.into_iter().map(|waiter| waiter.token).collect();
    Ok(held)
}

/// Returns the names of all locks that are in use, or were a short time ago, and of all records.
pub(crate) async fn names(ensemble: &Ensemble) -> Result<Vec<String>, Fault> {
    let live = ensemble.waiting.live().await?;
    match live.client.children(&ensemble.config.root).await {
        Ok(nodes) => Ok(nodes.iter().filter_map(|node| nodes::percent_decoded(node)).collect()),
        Err(ZooKeeperError::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the records of processes that exist under these names.
pub(crate) async fn records(
    ensemble: &Ensemble,
    names: &[String],
) -> Result<HashMap<String, String>, Fault> {
    let live = ensemble.waiting.live().await?;
    let mut asked = Vec::with_capacity(names.len());
    for name in names {
        // All requests are sent before the first answer is awaited.
        asked.push((name, live.client.data(&ensemble.directory(name)?)));
    }
    let mut records = HashMap::new();
    for (name, answer) in asked {
        match answer.await {
            Ok((data, _)) => {
                records.insert(name.clone(), String::from_utf8_lossy(&data).into_owned());
            }
            Err(ZooKeeperError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(records)
}
