//! What this process says of itself: an ephemeral node, beside those of the locks.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::session::{LiveSession, ManagedSession};
use crate::wire::{CreateMode, ZooKeeperError};

/// When it is tried again to make a node.
const AGAIN: Duration = Duration::from_secs(1);

/// A node that is there for as long as a session is.
pub(crate) struct ProcessRecord {
    link: Arc<ManagedSession>,
    /// The node, and what is in it.
    said: Mutex<Option<(String, String)>>,
}

impl ProcessRecord {
    /// Without a node so far.
    pub(crate) fn new(link: Arc<ManagedSession>) -> Arc<Self> {
        Arc::new(Self { link, said: Mutex::default() })
    }

    fn said(&self) -> MutexGuard<'_, Option<(String, String)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session is made with a lock; this goes with it.
    pub(crate) fn is_used(&self) {
        if self.said().is_some() {
            self.link.want();
        }
    }

    /// Has it made in each session that there is, one after the other.
    pub(crate) fn keep(self: &Arc<Self>, node: String, text: String, handle: &Handle) {
        *self.said() = Some((node, text));
        let record = self.clone();
        handle.spawn(async move {
            let mut session = 0;
            while let Some(live) = record.link.next(session).await {
                match record.say(&live).await {
                    Ok(true) => session = live.id,
                    Ok(false) => return,
                    Err(_) => tokio::time::sleep(AGAIN).await,
                }
            }
        });
    }

    /// Takes it back for good.
    pub(crate) async fn end(&self) -> Result<(), ZooKeeperError> {
        let said = self.said().take();
        let (Some((node, _)), true) = (said, self.link.is_up()) else { return Ok(()) };
        let Ok(live) = self.link.live().await else { return Ok(()) };
        match live.client.delete(&node).await {
            Err(ZooKeeperError::NoNode) => Ok(()),
            deleted => deleted,
        }
    }

    /// False if it was taken back.
    async fn say(&self, live: &LiveSession) -> Result<bool, ZooKeeperError> {
        let Some((node, made)) = self.make(live) else { return Ok(false) };
        match made.await {
            Err(ZooKeeperError::NodeExists) => {}
            made => return made.map(|_| true),
        }
        // By this session, or by one before it that ends only later.
        if live.client.exists(&node).await?.is_some_and(|stat| stat.ephemeral_owner == live.id) {
            return Ok(true);
        }
        match live.client.delete(&node).await {
            Ok(()) | Err(ZooKeeperError::NoNode) => {}
            Err(error) => return Err(error),
        }
        match self.make(live) {
            Some((_, made)) => made.await.map(|_| true),
            None => Ok(false),
        }
    }

    /// TokenProgress before it is taken back, or not at all.
    fn make(
        &self,
        live: &LiveSession,
    ) -> Option<(String, impl Future<Output = Result<String, ZooKeeperError>> + Send + use<>)> {
        let said = self.said();
        let (node, text) = said.as_ref()?;
        Some((node.clone(), live.client.create(node, text.as_bytes(), CreateMode::Ephemeral)))
    }
}
