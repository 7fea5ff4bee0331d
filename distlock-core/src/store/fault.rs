//! Why a store could not say yes or no, and the error that comes of it.

use std::fmt;
use std::sync::Arc;

use super::BackendKind;

/// Why a store could not say yes or no.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fault {
    pub kind: BackendKind,
    /// The store's words; never keys or passwords.
    detail: Option<Arc<str>>,
    /// Another try may go better.
    pub passing: bool,
}

impl Fault {
    pub fn passing(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: true }
    }

    pub fn lasting(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: false }
    }

    pub fn timed_out() -> Self {
        Self { kind: BackendKind::TimedOut, detail: None, passing: true }
    }

    /// The answer is not needed any more.
    pub fn given_up() -> Self {
        Self::passing(BackendKind::Other, "it was given up")
    }

    /// The manager gives no more locks.
    pub fn closed() -> Self {
        Self::lasting(BackendKind::Other, "the lock manager was closed")
    }

    /// Adds the node that the failure is about: `host:port`, or several of them.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        let detail = match self.detail.as_deref() {
            Some(said) if said.contains(node) => return self,
            Some(said) => format!("{node}: {said}"),
            None => node.to_owned(),
        };
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same, with more to say about it.
    pub fn and(self, words: &str) -> Self {
        let said = self.detail.as_deref().unwrap_or_default();
        Self { detail: Some([said, words].concat().into()), ..self }
    }

    /// The store's words, or a text for the kind if there are none.
    pub fn reason(&self) -> String {
        self.detail.as_deref().map_or_else(|| self.kind.to_string(), str::to_owned)
    }

    /// The store's words, if there are any.
    pub fn into_detail(self) -> Option<Arc<str>> {
        self.detail
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}
