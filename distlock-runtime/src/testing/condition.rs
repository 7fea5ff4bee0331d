//! What a test has arranged for a while.

use std::fmt;

/// What a test has arranged, until this is dropped.
#[must_use = "it ends when this is dropped: bind it, `let _down = locks.down();`"]
pub struct Condition {
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Condition {
    pub(super) fn until(end: impl FnOnce() + Send + 'static) -> Self {
        Self { end: Some(Box::new(end)) }
    }

    /// It is over: what dropping does, for code that wants to say so.
    pub fn end(self) {}
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}
