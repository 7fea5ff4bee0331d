//! Reading the holders and waiters of a lock, the names of locks, and the records of processes.

use distlock_core::clock::unix_time;
use distlock_core::process_info::record_name;
use distlock_core::store::{Fault, Held, Holder, Records};

use crate::ensemble::Ensemble;
use crate::nodes;
use crate::wire::ZooKeeperError;

/// Returns the holders and waiters of a lock, or `None` if nobody holds it. The remaining time of a holder is how long
/// it keeps the lock after its process has died.
pub(crate) async fn inspect(ensemble: &Ensemble, name: &str) -> Result<Option<Held>, Fault> {
    let directory = ensemble.directory(name)?;
    let live = ensemble.waiting.live().await?;
    let children = ensemble.children(&live, &directory).await?;
    let mut holders = Vec::with_capacity(children.holders.len());
    for holder in children.holders {
        match live.client.data(&format!("{directory}/{}", holder.node)).await {
            Ok((data, _)) => {
                let remaining = Some(nodes::ttl_of(data));
                holders.push(Holder { token: holder.token, remaining });
            }
            Err(ZooKeeperError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    holders.sort_by_key(|holder| holder.remaining);
    let queue = children.queue.into_iter().map(|waiter| waiter.token).collect();
    Ok((!holders.is_empty()).then_some(Held { holders, queue }))
}

/// Returns the names under a prefix of all locks that are in use, or were a short time ago.
pub(crate) async fn locks(ensemble: &Ensemble, prefix: &str) -> Result<Vec<String>, Fault> {
    let mut names = names(ensemble).await?;
    let is_lock =
        |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("lock:"));
    names.retain(|name| is_lock(name));
    Ok(names)
}

/// Returns the processes that have a record under a prefix.
pub(crate) async fn processes(ensemble: &Ensemble, prefix: &str) -> Result<Vec<String>, Fault> {
    let start = record_name(prefix, "");
    let names = names(ensemble).await?;
    let ids = names.iter().filter_map(|name| name.strip_prefix(&start));
    Ok(ids.map(str::to_owned).collect())
}

/// Returns the records that these processes have under a prefix.
pub(crate) async fn records(
    ensemble: &Ensemble,
    prefix: &str,
    processes: &[String],
) -> Result<Records, Fault> {
    let live = ensemble.waiting.live().await?;
    let mut asked = Vec::with_capacity(processes.len());
    for process in processes {
        // All requests are sent before the first answer is awaited.
        asked.push(live.client.data(&ensemble.directory(&record_name(prefix, process))?));
    }
    let mut texts = Vec::with_capacity(processes.len());
    for answer in asked {
        texts.push(match answer.await {
            Ok((data, _)) => Some(String::from_utf8_lossy(&data).into_owned()),
            Err(ZooKeeperError::NoNode) => None,
            Err(error) => return Err(error.into()),
        });
    }
    Ok(Records { time: unix_time(), texts })
}

/// Returns the names of all locks and records.
async fn names(ensemble: &Ensemble) -> Result<Vec<String>, Fault> {
    let live = ensemble.waiting.live().await?;
    match live.client.children(&ensemble.config.root).await {
        Ok(nodes) => Ok(nodes.iter().filter_map(|node| nodes::percent_decoded(node)).collect()),
        Err(ZooKeeperError::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
