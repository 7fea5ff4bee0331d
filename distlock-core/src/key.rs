//! The key of a lock: its text, and the template that it was made from.
//!
//! `distlock` re-exports [`LockKey`]. Its hidden methods are for the other crates of distlock.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The longest key, in bytes, after encoding.
const MAX_LEN: usize = 4096;

/// The key of a lock. Two calls exclude each other if their keys are the same text, under the same prefix of the same
/// store.
///
/// `key!` and the attribute make a key from a template. They percent-encode the values in it, so that different values
/// never make the same key. A string is taken as it is:
///
/// ```
/// # use distlock_core::key as distlock;
/// use distlock::LockKey;
///
/// let (shop, order) = ("eu", 42);
/// let key = LockKey::from(format!("{shop}:order:{order}"));
/// assert_eq!(key.as_str(), "eu:order:42");
/// ```
///
/// Prefer `key!` if a value comes from outside: as a plain string, the shop `eu:order` and the order `1` make the same
/// key as the shop `eu` and the order `order:1`.
///
/// A key has 1 to 4,096 bytes after encoding. A call for a lock with any other key fails with `LockError::InvalidKey`.
///
/// # Privacy
///
/// Keys carry account numbers and e-mail addresses, so `Debug` shows only the template:
///
/// ```
/// # use distlock_core::key::LockKey;
/// let key = LockKey::from("user:ada@example.org");
/// assert!(!format!("{key:?}").contains("ada"));
/// ```
#[derive(Clone)]
pub struct LockKey {
    text: Cow<'static, str>,
    template: Option<&'static str>,
    flaw: Option<Flaw>,
}

/// The reason why the text of a key must not be used.
#[derive(Debug, Clone, Copy)]
pub enum Flaw {
    /// The `Display` of a value returned an error, so the text is only the beginning of the key.
    Display,
    /// A path parameter is not of the kind that its template expects.
    Parameter,
}

impl LockKey {
    /// Returns the text of the key, as the store has it after the prefix.
    ///
    /// It contains the values, so take care where it is printed. Use [`template`](Self::template) for logs.
    ///
    /// ```
    /// # use distlock_core::key as distlock;
    /// assert_eq!(distlock::LockKey::from("order:42").as_str(), "order:42");
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the template that the key was made from, or `None` if it was made from a string.
    ///
    /// `key!("order:{order_id}")` has the template `order:{order_id}`. It is the same for every order, and safe to log.
    ///
    /// ```
    /// # use distlock_core::key::LockKey;
    /// assert_eq!(LockKey::from("nightly-report").template(), None);
    /// ```
    pub fn template(&self) -> Option<&'static str> {
        self.template
    }

    /// Makes a key from a template and the text that results from it.
    #[doc(hidden)]
    pub fn of_template(template: &'static str, text: String, flaw: Option<Flaw>) -> Self {
        Self { text: text.into(), template: Some(template), flaw }
    }

    /// Makes a key of a template that could not be filled in. Calls for a lock with this key fail.
    #[doc(hidden)]
    pub fn flawed(template: &'static str, flaw: Flaw) -> Self {
        Self { text: Cow::Borrowed(""), template: Some(template), flaw: Some(flaw) }
    }

    /// Returns an error if the key cannot be stored: why, and how to fix it.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), &'static str> {
        if let Some(flaw) = self.flaw {
            Err(match flaw {
                Flaw::Display => {
                    "the `Display` of a value in it returned an error; mend that `Display`, or use another value"
                }
                Flaw::Parameter => {
                    "the path has something else where its template expects a number or a UUID"
                }
            })
        } else if self.text.is_empty() {
            Err("it is empty; give every lock a name of its own, for example \"order:42\"")
        } else if self.text.len() > MAX_LEN {
            Err("it is longer than 4096 bytes; use an id or a hash of the long value")
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockKey").field("template", &self.template).finish_non_exhaustive()
    }
}

/// Takes the text as it is. A borrowed `&'static str` is not copied.
impl From<Cow<'static, str>> for LockKey {
    fn from(text: Cow<'static, str>) -> Self {
        Self { text, template: None, flaw: None }
    }
}

/// Takes the text as it is.
impl From<String> for LockKey {
    fn from(text: String) -> Self {
        Cow::<'static, str>::Owned(text).into()
    }
}

/// Copies the text as it is.
impl From<&str> for LockKey {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Copies the text as it is: an item of `lock_all(&["a", "b"])`.
impl From<&&str> for LockKey {
    fn from(text: &&str) -> Self {
        (*text).into()
    }
}

/// Copies the text as it is.
impl From<&String> for LockKey {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

/// Takes the text as it is.
impl From<Box<str>> for LockKey {
    fn from(text: Box<str>) -> Self {
        text.into_string().into()
    }
}

/// Copies the text as it is.
impl From<Arc<str>> for LockKey {
    fn from(text: Arc<str>) -> Self {
        text.as_ref().into()
    }
}

/// Clones the key: an item of `lock_all(&keys)`.
impl From<&Self> for LockKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: H6.
    #[test]
    fn says_why_a_key_cannot_be_stored() {
        assert!(LockKey::from("").check().is_err_and(|reason| reason.contains("empty")));
        assert!(LockKey::from("x".repeat(4096)).check().is_ok());
        assert!(
            LockKey::from("x".repeat(4097)).check().is_err_and(|reason| reason.contains("4096"))
        );
    }

    #[test]
    fn debug_does_not_show_a_text() {
        assert!(!format!("{:?}", LockKey::from("a@example.org")).contains('@'));
    }

    #[test]
    fn every_kind_of_text_is_a_key() {
        let keys: [LockKey; 8] = [
            "k".into(),
            String::from("k").into(),
            (&String::from("k")).into(),
            (&"k").into(),
            Cow::Borrowed("k").into(),
            Box::<str>::from("k").into(),
            Arc::<str>::from("k").into(),
            (&LockKey::from("k")).into(),
        ];
        assert!(keys.iter().all(|key| key.as_str() == "k" && key.template().is_none()));
    }
}
