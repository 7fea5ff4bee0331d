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
//! | [`authentication`] | settings for TLS, and a user with a password |
//!
//! These modules are about time:
//!
//! | module | contents |
//! |---|---|
//! | [`clock`] | moments, and the clock that the leases of a store age on |
//! | [`timers`] | entries that become due, and a future that waits for one |
//! | [`back_off`], [`reconnect`] | the pauses between attempts, and a connection that is made again |
//!
//! The others are tools: [`signal`] and [`select`] for futures, [`per_thread`] and [`collections`] for data,
//! [`catch_panic`] and [`fork_guard`] for code and processes outside of our control.
//!
//! R1 to R15 in comments are the rules of the protocol, in `distlock-runtime/PROTOCOL.md`.

pub mod authentication;
pub mod back_off;
pub mod catch_panic;
pub mod clock;
pub mod collections;
pub mod fork_guard;
pub mod key;
pub mod limit;
pub mod line;
pub mod name;
pub mod per_thread;
pub mod process_info;
pub mod questions;
pub mod reconnect;
pub mod redlock;
pub mod select;
pub mod signal;
pub mod store;
pub mod timers;
pub mod token;
