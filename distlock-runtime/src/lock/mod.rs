//! The life of one lock in this process: how it is asked for, held, handed over and given back.
//!
//! # Modules
//!
//! | step | file |
//! |---|---|
//! | a call asks for a lock, or for several | `call`, `acquire`; `outage` where the store has been gone for long |
//! | it comes to the lock's line, and leaves it | `calls`; `try_acquire` for the call's own try, `waiter` for its wait |
//! | **what becomes of it is decided** | **`core`**: which callers wait and hold, what is sent, what is lost |
//! | a line is found, changed and planned | `table`, among its `lines`; `effects` carries out what a change brings about; `schedule`, `serve` when it is due, `waits` when a wait ends |
//! | its batches enter the store's queue | `commands` |
//! | the call holds | `lease`, in a `guard` (put together in `assemble`); `hold` polls a body before the deadline only, `nested` knows calls inside |
//! | a writer goes on as a reader | `downgrade` |
//! | the lease is renewed, or said to be taken away | `renew`, `revoked` |
//! | it is given back | `finish` for a guard, `release`, with `release_retry` and `release_recheck`; `orphans` for tokens that only the store still knows |
//!
//! `locks` is what a manager and its guards share.
//!
//! # Cancellation
//!
//! A caller's future may be dropped at every await. What was begun is undone, or left to the engine, by
//! these destructors; none of them waits:
//!
//! | `Drop` of | when | what it guarantees |
//! |---|---|---|
//! | [`try_acquire::Lead`], [`try_acquire::Alone`] | during the try | the token is released, behind the try; a line without others is gone |
//! | [`waiter::Waiting`] | while waiting | the call leaves the line; a lease granted in that moment goes to the next waiter |
//! | [`guard::LockGuard`] | while holding, or between several locks | each lease is handed over, or its release is sent |
//! | [`release::Releasing`] | while the release is under way | it is sent if it was not, and the engine sees to the answer |
//! | [`Alarm`](crate::engine::alarm::Alarm) | while waiting for anything with a limit | its timer is taken out |
//! | `nested`'s list of leases | when a body's poll ends, also by a panic | a body's locks count as held only while it is polled |
//! | [`Unfinished`](crate::engine::Unfinished) | when a release is confirmed or given up | the engine's thread ends, and `close` returns, only after it |
//! | [`Engine`](crate::engine::Engine) | with the last manager and guard | the thread ends once nothing is unfinished |
//!
//! The body of a locked call is declared after its guard, and so dropped before it. In a child that was
//! forked none of them does anything: the locks are its parent's.

mod acquire;
mod assemble;
pub(crate) mod call;
mod calls;
mod commands;
mod downgrade;
mod effects;
mod exchange;
mod finish;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod lease;
mod lines;
pub(crate) mod locks;
pub(crate) mod nested;
mod orphans;
pub(crate) mod outage;
pub(crate) mod release;
mod release_recheck;
pub(crate) mod release_retry;
mod renew;
mod revoked;
mod schedule;
pub(crate) mod serve;
mod snapshot;
pub(crate) mod table;
pub(crate) mod told;
mod try_acquire;
pub(crate) mod waiter;
mod waits;

pub(crate) use distlock_core::line as core;
