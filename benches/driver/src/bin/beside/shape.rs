//! Which callers want which locks.

use std::time::Duration;

/// So many tasks that take locks again and again.
pub(crate) struct Shape {
    pub(crate) title: &'static str,
    /// Of distlock: managers, each of which is a process to the others. Of others: clients, where several tasks
    /// can share one.
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) tasks: usize,
    /// A task takes one lock after the other of so many.
    pub(crate) keys: usize,
    /// For how long it holds each.
    pub(crate) body: Duration,
}

/// For how long each is measured.
pub(crate) const WHILE: Duration = Duration::from_secs(4);

const NONE: Duration = Duration::ZERO;

pub(crate) const SHAPES: [Shape; 3] = [
    Shape {
        title: "One task, a free lock after the other",
        clients: 1,
        tasks: 1,
        keys: 64,
        body: NONE,
    },
    Shape {
        title: "8 processes × 25 tasks want one lock, each for 1 ms",
        clients: 8,
        tasks: 25,
        keys: 1,
        body: Duration::from_millis(1),
    },
    Shape {
        title: "16 processes, one task each, want one lock",
        clients: 16,
        tasks: 1,
        keys: 1,
        body: NONE,
    },
];
