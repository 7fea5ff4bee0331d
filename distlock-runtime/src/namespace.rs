//! How locks are named in a store.
//!
//! The kind of key stands before the user's text, so that no key can be mistaken for another
//! lock's queue or counter. The whole user key is the Redis Cluster hash tag, unless it brings a
//! tag of its own.

use crate::error::LockError;

/// The part of a store that one prefix names.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    /// With its separator; empty for none.
    prefix: String,
}

impl Namespace {
    pub(crate) fn new(prefix: &str) -> Result<Self, LockError> {
        if prefix.contains(['{', '}']) || prefix.chars().any(char::is_control) {
            return Err(LockError::invalid_option(
                "prefix: must not contain `{`, `}` or control characters; it would move every lock into one cluster slot",
            ));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        Ok(Self { prefix })
    }

    /// Where the lock of a key is stored.
    pub(crate) fn lock(&self, key: &str) -> String {
        let (open, close) = if has_hash_tag(key) { ("lock::", "") } else { ("lock:{", "}") };
        [&self.prefix, open, key, close].concat()
    }

    /// The counter that fencing tokens are drawn from.
    pub(crate) fn fence(&self) -> String {
        format!("{}fence", self.prefix)
    }
}

/// Redis Cluster's rule: the text between the first `{` and the first `}` after it, if there is any.
fn has_hash_tag(key: &str) -> bool {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let named = Namespace::new("distlock").expect("a good prefix");
        assert_eq!(named.lock("order:1"), "distlock:lock:{order:1}");
        assert_eq!(named.lock("{order}:1"), "distlock:lock::{order}:1");
        assert_eq!(named.lock("{}order"), "distlock:lock:{{}order}");
        assert_eq!(named.fence(), "distlock:fence");
        let bare = Namespace::new("").expect("no prefix");
        assert_eq!(bare.lock("a"), "lock:{a}");
    }

    #[test]
    fn a_prefix_may_not_be_a_hash_tag() {
        assert!(Namespace::new("{a}").is_err());
    }
}
