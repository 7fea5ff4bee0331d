//! The part of `distlock` that decides, without I/O and without a runtime. Use the `distlock` crate; this one has no
//! stability of its own.
//!
//! Nothing here reads a socket, spawns a task or knows tokio. The callers poll the futures that this crate returns.
//!
//! # Where to begin
//!
//! Three rooms hold the decisions:
//!
//! | module | contents |
//! |---|---|
//! | [`line`](mod@line) | the state machine of one lock in one process: which calls wait, which hold, which commands are sent |
//! | [`store`] | the trait [`Store`](store::Store) that each store implements, and its vocabulary |
//! | [`redlock`] | the arithmetic of a quorum: votes, their tally, and the restart guard |
//!
//! These modules name things:
//!
//! | module | contents |
//! |---|---|
//! | [`key`], [`name`] | the key of a lock, its label in errors, and its name in a store |
//! | [`token`], [`limit`] | owner tokens, and how many may hold a lock at once |
//! | [`process_info`], [`questions`] | the description of a process, and its questions to other processes (R15) |
//! | [`credentials`], [`tls`] | settings of a connection that are the same for every store |
//!
//! These modules are about time:
//!
//! | module | contents |
//! |---|---|
//! | [`clock`] | moments, and the clock that the leases of a store age on |
//! | [`timers`], [`alarm`] | entries that become due, and a future that waits for one |
//! | [`jitter`], [`reconnect`] | random pauses, back-off, and a connection that is kept up |
//!
//! The others are tools: [`signal`] and [`select`] for futures, [`per_thread`], [`one_or_many`] and [`shrink`] for data,
//! [`catch_panic`] and [`fork_guard`] for code and processes outside of our control.
//!
//! R1 to R15 in comments are the rules of the protocol, in `distlock-runtime/PROTOCOL.md`.

pub mod alarm;
pub mod catch_panic;
pub mod clock;
pub mod credentials;
pub mod fork_guard;
pub mod jitter;
pub mod key;
pub mod limit;
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
