//! What to lock: the key's text, where it came from, and how arguments are encoded into it.

use std::borrow::Cow;
use std::fmt;

/// What to lock. Made by `key!` and by the attribute, where every argument is escaped, or from a
/// string, which is taken as it is.
#[derive(Clone)]
pub struct LockKey {
    text: Cow<'static, str>,
    template: Option<&'static str>,
}

impl LockKey {
    /// The key as it is stored after the prefix.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The template it was made from, if it was.
    pub fn template(&self) -> Option<&'static str> {
        self.template
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockKey").field("template", &self.template).finish_non_exhaustive()
    }
}

impl From<String> for LockKey {
    fn from(text: String) -> Self {
        Self { text: Cow::Owned(text), template: None }
    }
}

impl From<&str> for LockKey {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl LockKey {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }
}
