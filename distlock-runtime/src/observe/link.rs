//! Whether a connection is there, for as long as it is wanted.

use super::{Connection, Observers};

/// What was told of one connection. Dropped, it is not wanted any more.
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
        match (was_up == Some(true), is_up == Some(true)) {
            (false, true) => self.observers.connection(Connection::Connected),
            (true, false) => self.observers.connection(Connection::Disconnected),
            _ => {}
        }
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.change(None);
    }
}
