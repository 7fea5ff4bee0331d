//! The record of this process: an ephemeral node next to those of the locks.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::store::Fault;
use tokio::runtime::Handle;

use crate::session::{LiveSession, ManagedSession};
use crate::wire::{CreateMode, ZooKeeperError};

/// Repeat a failed attempt to create the node after this pause.
const PAUSE: Duration = Duration::from_secs(1);

/// The record of this process, which exists for as long as its session.
pub(crate) struct ProcessRecord {
    session: Arc<ManagedSession>,
    /// The node and its text; `None` while there is to be no record.
    content: Mutex<Option<(String, String)>>,
}

impl ProcessRecord {
    /// Returns a record without a node.
    pub(crate) fn new(session: Arc<ManagedSession>) -> Arc<Self> {
        Arc::new(Self { session, content: Mutex::default() })
    }

    fn content(&self) -> MutexGuard<'_, Option<(String, String)>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the session of the record, because this process uses a lock.
    pub(crate) fn is_used(&self) {
        if self.content().is_some() {
            self.session.want();
        }
    }

    /// Creates the node, and creates it again in each later session.
    pub(crate) fn keep(self: &Arc<Self>, node: String, text: String, handle: &Handle) {
        *self.content() = Some((node, text));
        let record = self.clone();
        handle.spawn(async move {
            let mut session = 0;
            while let Some(live) = record.session.next(session).await {
                match record.create_in(&live).await {
                    Ok(true) => session = live.id,
                    Ok(false) => return,
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        });
    }

    /// Removes the node, and does not create it again.
    pub(crate) async fn remove(&self) -> Result<(), Fault> {
        let content = self.content().take();
        let (Some((node, _)), true) = (content, self.session.is_up()) else { return Ok(()) };
        let Ok(live) = self.session.live().await else { return Ok(()) };
        live.client.delete(&node).await?;
        Ok(())
    }

    /// Makes sure that the node exists in this session. Returns false if the record was removed.
    async fn create_in(&self, live: &LiveSession) -> Result<bool, ZooKeeperError> {
        let Some((node, created)) = self.create(live) else { return Ok(false) };
        match created.await {
            Err(ZooKeeperError::NodeExists) => {}
            created => return created.map(|_| true),
        }
        // The node may belong to this session, or to an earlier one that has not expired yet.
        if live.client.exists(&node).await?.is_some_and(|stat| stat.ephemeral_owner == live.id) {
            return Ok(true);
        }
        live.client.delete(&node).await?;
        match self.create(live) {
            Some((_, created)) => created.await.map(|_| true),
            None => Ok(false),
        }
    }

    /// Sends the request to create the node, unless the record was removed. The mutex orders it before a removal.
    fn create(
        &self,
        live: &LiveSession,
    ) -> Option<(String, impl Future<Output = Result<String, ZooKeeperError>> + Send + use<>)> {
        let content = self.content();
        let (node, text) = content.as_ref()?;
        Some((node.clone(), live.client.create(node, text.as_bytes(), CreateMode::Ephemeral)))
    }
}
