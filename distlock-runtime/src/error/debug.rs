//! What a program prints whose `main` returns the error, and what `expect` and `unwrap` print.

use std::error::Error;
use std::fmt;

use super::LockError;

/// The text for people, and the store's own words: `main` and `unwrap` print no source.
impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::BackendKind;

    #[test]
    fn it_is_the_readable_text_with_the_stores_own_words() {
        let source: Arc<dyn Error + Send + Sync> = Arc::from(Box::from("connection refused"));
        let kind = BackendKind::Unreachable;
        let error = LockError::Backend { lock: None, kind, source: Some(source) };
        let text = "the lock store cannot be reached: connection refused";
        assert_eq!(format!("{error:?}"), text);
        assert_eq!(format!("{error:#?}"), text);
        assert_eq!(format!("{:?}", LockError::Closed), LockError::Closed.to_string());
    }
}
