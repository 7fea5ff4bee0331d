//! The part of `distlock` that decides, without I/O and without a runtime. Use the `distlock` crate; this one has no
//! stability of its own.
//!
//! | room | what is in it |
//! |---|---|
//! | [`line`](mod@line) | the state machine of one lock in one process: which calls wait, which hold, what is sent |
//! | [`redlock`] | the client of a quorum: votes, their tally, and servers that have restarted |
//! | [`store`] | the trait [`Store`](store::Store) that each store implements, and its vocabulary |
//! | [`name`], [`key`], [`token`], [`capacity`] | names of locks, owner tokens, and how many may hold a lock at once |
//! | [`questions`] | questions of other processes about locks, until they are answered together |
//! | [`clock`], [`timers`], [`alarm`], [`reconnect`] | time: moments, what is due, how to wait for it, back-off |
//!
//! Nothing here reads a socket, spawns a task or knows tokio. Futures that this crate returns are polled by its callers.

pub mod alarm;
pub mod capacity;
pub mod catch_panic;
pub mod clock;
pub mod credentials;
pub mod fork_guard;
pub mod jitter;
pub mod key;
pub mod line;
pub mod name;
pub mod one_or_many;
pub mod per_thread;
pub mod process_info;
pub mod questions;
pub mod reconnect;
pub mod redlock;
pub mod select;
pub mod shrink;
pub mod signal;
pub mod store;
pub mod timers;
pub mod tls;
pub mod token;
