//! What processes say of themselves: an ephemeral node each, beside those of the locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ensemble::{Ensemble, Inner};
use crate::fault::Fault;
use crate::session::Live;
use crate::wire::{Error, Mode};

/// When it is tried again to make a node.
const AGAIN: Duration = Duration::from_secs(1);

/// What this process says of itself.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The name of its node, and what is in it.
    said: Option<(String, String)>,
    /// It was taken back for good.
    is_over: bool,
}

impl Record {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to be said.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.state();
        state.said.is_some() && !state.is_over
    }
}

impl Ensemble {
    /// Has a text be there under a name for as long as this process has a session.
    pub fn introduce(&self, name: &str, text: String) {
        let Ok(node) = self.inner.directory(name) else { return };
        self.inner.record.state().said = Some((node, text));
        self.inner.handle.spawn(keep(self.inner.clone()));
    }

    /// Takes it back.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn take_leave(&self) -> Result<(), Fault> {
        let said = {
            let mut state = self.inner.record.state();
            state.is_over = true;
            state.said.take()
        };
        let (Some((node, _)), true) = (said, self.inner.waiting.is_up()) else { return Ok(()) };
        let live = self.inner.waiting.live().await?;
        match live.client.delete(&node).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(Fault::of(error)),
        }
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
            // Sent now, and answered in order.
            asked.push((name, live.client.data(&self.inner.directory(name)?)));
        }
        let mut records = HashMap::new();
        for (name, answer) in asked {
            match answer.await {
                Ok((data, _)) => {
                    records.insert(name.clone(), String::from_utf8_lossy(&data).into_owned());
                }
                Err(Error::NoNode) => {}
                Err(error) => return Err(Fault::of(error)),
            }
        }
        Ok(records)
    }
}

/// Makes the node in each session of waiters that there is, one after the other.
async fn keep(inner: Arc<Inner>) {
    let mut session = 0;
    loop {
        let Some(live) = inner.waiting.next(session).await else { return };
        if !inner.record.is_wanted() {
            return;
        }
        match say(&inner, &live).await {
            Ok(()) => session = live.id,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn say(inner: &Inner, live: &Live) -> Result<(), Error> {
    let make = || {
        // Sent before it is taken back, or not at all.
        let state = inner.record.state();
        let (node, text) = state.said.as_ref()?;
        Some((node.clone(), live.client.create(node, text.as_bytes(), Mode::Ephemeral)))
    };
    let Some((node, made)) = make() else { return Ok(()) };
    match made.await {
        Err(Error::NodeExists) => {}
        made => return made.map(|_| ()),
    }
    // By this session, or by one before it that ends only later.
    if live.client.exists(&node).await?.is_some_and(|stat| stat.ephemeral_owner == live.id) {
        return Ok(());
    }
    let _ = live.client.delete(&node).await;
    match make() {
        Some((_, made)) => made.await.map(|_| ()),
        None => Ok(()),
    }
}
