//! How locks are named in a store.
//!
//! The kind of key stands before the user's text, so that no key can be mistaken for another
//! lock's queue or counter. The whole user key is the Redis Cluster hash tag, unless it brings a
//! tag of its own.

use std::sync::Arc;

use distlock_core::key::LockKey;
use distlock_core::name::{Label, LockName, StoredName};

use crate::error::LockError;

/// The part of a store that one prefix names.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    /// With its separator; empty for none.
    prefix: String,
    /// What stands before a key that is to be the tag, and before one that has a tag of its own.
    open: String,
    open_tagged: String,
    /// Not the manager's: a request named it.
    of_request: bool,
}

impl Namespace {
    pub(crate) fn new(prefix: &str) -> Result<Self, LockError> {
        if prefix.contains(['{', '}']) || prefix.chars().any(char::is_control) {
            return Err(LockError::invalid_option(
                "prefix: must not contain `{`, `}` or control characters; it would move every lock into one cluster slot",
            ));
        }
        // `<prefix>:lock::` begins the names of locks with a tag of their own. Otherwise what follows
        // `lock:` is a brace, which no prefix contains, so that no other prefix can reach a name.
        if format!(":{prefix}:").contains(":lock::") {
            return Err(LockError::invalid_option(
                "prefix: must not contain `lock` with an empty part behind it; its locks could be mistaken for those of a shorter prefix",
            ));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        let (open, open_tagged) = (format!("{prefix}lock:{{"), format!("{prefix}lock::"));
        Ok(Self { prefix, open, open_tagged, of_request: false })
    }

    /// What a request named instead, for this lock only.
    pub(crate) fn of_request(&self, prefix: &str) -> Result<Self, LockError> {
        let other = Self::new(prefix)?;
        let of_request = other.prefix != self.prefix;
        Ok(Self { of_request, ..other })
    }

    /// The lock of a key, or what is wrong with the key.
    #[inline(always)]
    pub(crate) fn name(&self, label: Label, key: LockKey) -> Result<Arc<LockName>, LockError> {
        let checked = key.check();
        let stored = StoredName::new(self.lock(key.as_str()));
        let fence = self.of_request.then(|| self.fence().into());
        let name = Arc::new(LockName::new(label, key, stored, self.prefix.len(), fence));
        match checked {
            Ok(()) => Ok(name),
            Err(reason) => {
                Err(LockError::InvalidKey { lock: Box::new(LockName::clone(&name)), reason })
            }
        }
    }

    /// Where the lock of a key is stored.
    #[inline]
    fn lock(&self, key: &str) -> String {
        let is_tag = !has_hash_tag(key);
        let open = if is_tag { &self.open } else { &self.open_tagged };
        let mut stored = String::with_capacity(open.len() + key.len() + 1);
        stored.push_str(open);
        stored.push_str(key);
        if is_tag {
            stored.push('}');
        }
        stored
    }

    /// The prefix, with its separator.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The counter that fencing tokens are drawn from.
    pub(crate) fn fence(&self) -> String {
        format!("{}fence", self.prefix)
    }
}

/// Redis Cluster's rule: the text between the first `{` and the first `}` after it, if there is any.
fn has_hash_tag(key: &str) -> bool {
    // Few keys have a brace at all.
    if !key.as_bytes().contains(&b'{') {
        return false;
    }
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: H5.
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

    #[test]
    fn a_prefix_may_not_reach_into_the_names_of_a_shorter_one() {
        for prefix in ["lock:", "a:lock:", "a:lock::b"] {
            assert!(Namespace::new(prefix).is_err(), "{prefix}");
        }
        for prefix in ["lock", "a:lock", "a:lock:b", "unlock:", ":", "a::lock"] {
            assert!(Namespace::new(prefix).is_ok(), "{prefix}");
        }
    }
}
