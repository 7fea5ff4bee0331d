//! The holders and waiters of a lock, and the processes that there are.

use std::collections::HashMap;
use std::time::Duration;

use crate::ensemble::Ensemble;
use crate::fault::Fault;
use crate::nodes;
use crate::wire::ZooKeeperError;

/// A lock that is held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The tokens, and how long each holds it after its process has died.
    pub holders: Vec<(String, Duration)>,
    /// The tokens that wait, in order.
    pub waiters: Vec<String>,
}

impl Ensemble {
    /// The holders of a lock, and its waiters.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn inspect(&self, name: &str) -> Result<Held, Fault> {
        let directory = self.inner.directory(name)?;
        let live = self.inner.waiting.live().await?;
        let standing = self.inner.standing(&live, &directory).await?;
        let mut held = Held::default();
        for holder in standing.holders {
            match live.client.data(&format!("{directory}/{}", holder.node)).await {
                Ok((data, _)) => {
                    let ttl = String::from_utf8(data).ok().and_then(|text| text.parse().ok());
                    held.holders.push((holder.token, Duration::from_millis(ttl.unwrap_or(0))));
                }
                Err(ZooKeeperError::NoNode) => {}
                Err(error) => return Err(Fault::of(error)),
            }
        }
        held.holders.sort_by_key(|(_, ttl)| *ttl);
        held.waiters = standing.queue.into_iter().map(|waiter| waiter.token).collect();
        Ok(held)
    }

    /// The names of all locks that are used, or were a short time ago.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn names(&self) -> Result<Vec<String>, Fault> {
        let live = self.inner.waiting.live().await?;
        match live.client.children(&self.inner.shared.root).await {
            Ok(nodes) => Ok(nodes.iter().filter_map(|node| nodes::name(node)).collect()),
            Err(ZooKeeperError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(Fault::of(error)),
        }
    }

    /// Has a text be there under a name for as long as this process has a session.
    pub fn introduce(&self, name: &str, text: String) {
        if let Ok(node) = self.inner.directory(name) {
            self.inner.record.keep(node, text, &self.inner.handle);
        }
    }

    /// Takes it back.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn take_leave(&self) -> Result<(), Fault> {
        self.inner.record.end().await.map_err(Fault::of)
    }

    /// What is there under these names, of those that are.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn records(&self, names: &[String]) -> Result<HashMap<String, String>, Fault> {
        let live = self.inner.waiting.live().await?;
        let mut asked = Vec::with_capacity(names.len());
        for name in names {
            // TokenProgress now, and answered in order.
            asked.push((name, live.client.data(&self.inner.directory(name)?)));
        }
        let mut records = HashMap::new();
        for (name, answer) in asked {
            match answer.await {
                Ok((data, _)) => {
                    records.insert(name.clone(), String::from_utf8_lossy(&data).into_owned());
                }
                Err(ZooKeeperError::NoNode) => {}
                Err(error) => return Err(Fault::of(error)),
            }
        }
        Ok(records)
    }
}
