//! Whether a connection is there, for as long as it is wanted.

use super::Observers;

/// The state of one connection as it was last reported. Dropped, the connection is not wanted any more.
pub(crate) struct LinkWatch {
    observers: Observers,
    is_up: Option<bool>,
}

impl LinkWatch {
    /// Nothing is known of it yet.
    pub(crate) fn new(observers: Observers) -> Self {
        Self { observers, is_up: None }
    }

    /// It is there, or is not.
    pub(crate) fn is(&mut self, up: bool) {
        self.change(Some(up));
    }

    fn change(&mut self, is_up: Option<bool>) {
        let was_up = std::mem::replace(&mut self.is_up, is_up);
        if was_up != is_up {
            self.observers.link(was_up, is_up);
        }
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.change(None);
    }
}
