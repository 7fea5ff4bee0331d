//! What a server is asked, and its answers.

use distlock::__console::{StoreCommand, StoreReply};
use distlock::{LockError, LockManager};

/// One server of the store.
pub(super) struct Server<'a> {
    manager: &'a LockManager,
    /// Its address; `None` if it is the only one, or not known by one.
    pub(super) node: Option<String>,
}

impl<'a> Server<'a> {
    /// All that take commands; none in a store that takes none.
    pub(super) fn all(manager: &'a LockManager) -> Vec<Self> {
        manager.store_nodes().into_iter().map(|node| Self { manager, node }).collect()
    }

    /// The answer to each.
    pub(super) async fn ask(
        &self,
        commands: Vec<StoreCommand>,
    ) -> Result<Vec<StoreReply>, LockError> {
        self.manager.ask_store(self.node.as_deref(), commands).await
    }

    /// The answer to one; `None` if there is none.
    pub(super) async fn answer(&self, words: &[&str]) -> Option<StoreReply> {
        self.ask(vec![command(words)]).await.ok()?.pop()
    }
}

pub(super) fn command(words: &[&str]) -> StoreCommand {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A text that is one.
pub(super) fn text(reply: &StoreReply) -> Option<String> {
    match reply {
        StoreReply::Text(text) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}

/// What a server says of itself, as far as it does.
pub(super) struct Info(pub(super) Option<String>);

impl Info {
    /// An error if the server does not answer at all.
    pub(super) async fn ask(server: &Server<'_>) -> Result<Self, LockError> {
        let answers = server.ask(vec![command(&["INFO"])]).await?;
        Ok(Self(answers.first().and_then(text)))
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
