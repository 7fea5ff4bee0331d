//! Commands to one server of the store, and its replies.

use distlock::{LockError, LockManager};

use crate::admin::{StoreCommand, StoreReply};

/// A client of one server of the store.
pub(super) struct ServerClient<'a> {
    manager: &'a LockManager,
    /// The address; `None` if there is only one server, or if the address is unknown.
    pub(super) node: Option<String>,
}

impl<'a> ServerClient<'a> {
    /// Returns a client for each server that takes commands. Some stores have none.
    pub(super) fn all(manager: &'a LockManager) -> Vec<Self> {
        manager.store_nodes().into_iter().map(|node| Self { manager, node }).collect()
    }

    /// Sends the commands, and returns a reply to each.
    pub(super) async fn send_all(
        &self,
        commands: Vec<StoreCommand>,
    ) -> Result<Vec<StoreReply>, LockError> {
        self.manager.ask_store(self.node.as_deref(), commands).await
    }

    /// Sends a command, and returns the reply; `None` if there is none.
    pub(super) async fn send(&self, words: &[&str]) -> Option<StoreReply> {
        self.send_all(vec![command(words)]).await.ok()?.pop()
    }
}

pub(super) fn command(words: &[&str]) -> StoreCommand {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the reply if it is a text.
pub(super) fn text(reply: &StoreReply) -> Option<String> {
    match reply {
        StoreReply::Text(text) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}

/// The reply to `INFO`, if the server allows that command.
pub(super) struct ServerInfo(pub(super) Option<String>);

impl ServerInfo {
    /// Asks the server. Fails if the server does not reply at all.
    pub(super) async fn read(server: &ServerClient<'_>) -> Result<Self, LockError> {
        let replies = server.send_all(vec![command(&["INFO"])]).await?;
        Ok(Self(replies.first().and_then(text)))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let lines = self.0.as_deref()?.lines();
        let mut fields = lines.filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}
