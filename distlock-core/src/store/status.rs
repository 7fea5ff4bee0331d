//! What a store says about its connections.

/// How waiters of a manager learn that a lock is theirs.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUps {
    /// They are notified: by a message on the manager's subscription, or within the process. A message
    /// may be lost, so they also poll every five seconds.
    Notified,
    /// There is no subscription: not yet, not at present, or the server does not permit one. Waiters
    /// poll the store, at least once a second.
    Polling,
}

/// Whose runtime reads and writes a manager's connections.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivenBy {
    /// The manager's own thread.
    Manager,
    /// The runtime of its callers: a connection that is used often moves there. The manager's thread takes
    /// it back if that runtime does not keep up.
    Callers,
}

/// The store's part of a manager's status.
#[derive(Debug, Clone, Copy)]
pub struct StoreStatus {
    /// Whether it is there.
    pub connected: bool,
    /// How waiters learn that a lock is theirs.
    pub wake_ups: WakeUps,
    /// What moves its bytes.
    pub driven_by: DrivenBy,
}

impl StoreStatus {
    /// Of a store in this process.
    pub const LOCAL: Self =
        Self { connected: true, wake_ups: WakeUps::Notified, driven_by: DrivenBy::Manager };
}
