//! What a manager says of itself, without asking the store.

/// What [`LockManager::status`](crate::LockManager::status) saw: for health checks, dashboards and
/// tests that wait until a manager is ready. No I/O; it may be stale by the time it is read.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagerStatus {
    /// A connection for commands is up. In memory: always.
    pub connected: bool,
    /// The manager was closed and gives no more locks.
    pub closed: bool,
    /// Locks that are held here. One that a waiter was granted and has not taken yet counts too.
    pub held: usize,
    /// Calls that wait here for a lock, each key of a call for several by itself.
    pub waiting: usize,
    /// How those that wait learn that a lock is free.
    pub wake_ups: WakeUps,
    /// Where connections for commands are driven at present.
    pub driven_by: DrivenBy,
}

/// How waiters of a manager learn that a lock is theirs.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUps {
    /// They are notified: by a message on the manager's subscription, or within the process.
    Notified,
    /// There is no subscription: not yet, not at present, or the server does not allow one. Waiters
    /// ask the store up to once a second.
    Polling,
}

/// Whose runtime reads and writes a manager's connections.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivenBy {
    /// The manager's own thread.
    Manager,
    /// The runtime of its callers, as happens to a connection that is used often; the manager's
    /// thread takes it back if that runtime does not keep up.
    Callers,
}

/// The part of it that the store knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreStatus {
    pub(crate) connected: bool,
    pub(crate) wake_ups: WakeUps,
    pub(crate) driven_by: DrivenBy,
}

impl StoreStatus {
    /// Of a store in this process.
    pub(crate) const LOCAL: Self =
        Self { connected: true, wake_ups: WakeUps::Notified, driven_by: DrivenBy::Manager };
}
