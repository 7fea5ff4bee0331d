//! The life of one lock in this process: how it is acquired, held, handed over and released.
//!
//! # Files
//!
//! A file imports only files that stand above it in this list.
//!
//! | file | concept |
//! |---|---|
//! | **`distlock_core::line`** | the state machine of one lock, a *line*: which callers wait and hold, what is sent, what is lost |
//! | `orphans` | tokens that only the store still knows |
//! | `services` | what everything uses: the store, the clock, the observers, the engine |
//! | `lease` | one caller's lock, and the seat in which it waits for it |
//! | `effects` | what one change of a line brings about, collected while it changes |
//! | `schedule` | when a line is looked at next |
//! | `release_retry`, `release_recheck` | releases that are not confirmed; releases that are sent again later |
//! | **`table`** | all lines: finds one, changes it, plans its next look |
//! | `revoked`, `snapshot` | an operator has taken a lock away; what this process holds, for those that ask |
//! | `messages` | what the store tells this process |
//! | `release` | a lease ends, and its token is released until that is confirmed |
//! | `renew` | leases are renewed |
//! | **`commands`** | carries effects out: wakes tasks, sends commands, looks at lines that are due |
//! | `waiter` | the wait of a caller in line |
//! | `try_acquire` | the try of a call by itself |
//! | `locks` | starts all of it: what a manager and its guards share |
//! | **`guard`** | the user's lock: one lease, or several |
//! | `downgrade` | a writer continues as a reader |
//! | `hold` | a body is polled before the deadline only; calls inside calls |
//! | `outage` | calls that begin while the store has been gone for long |
//! | **`acquire`** | a call for a lock, or for several |
//!
//! A call goes from `acquire` to `table`, which changes the line, and back with what the line has decided: a try of
//! its own, a wait, or a lease. The answers of the store take the same way. One circle cannot be avoided: a
//! change brings about commands, and their answers are changes. So `table` gets `commands::carry_out` as a function.
//!
//! # Cancellation
//!
//! A caller's future may be dropped at every await. These destructors undo what was begun, or leave it to the
//! engine; none of them waits:
//!
//! | `Drop` of | when | what it guarantees |
//! |---|---|---|
//! | [`try_acquire::Try`] | during the try | the token is released, after the try; a line without others is gone |
//! | [`waiter::Waiting`] | while waiting | the call leaves the line; a lease granted in that moment goes to the next waiter |
//! | [`guard::LockGuard`] | while holding, or between several locks | each lease is handed over, or its release is sent |
//! | [`release::Releasing`] | while the release is under way | it is sent if it was not, and the engine sees to the answer |
//! | [`Alarm`](crate::engine::alarm::Alarm) | while waiting for anything with a limit | its timer is taken out |
//! | `hold`'s list of leases | when a body's poll ends, also by a panic | a body's locks count as held only while it is polled |
//! | [`Unfinished`](crate::engine::Unfinished) | when a release is confirmed or given up | the engine's thread ends, and `close` returns, only after it |
//! | [`Engine`](crate::engine::Engine) | with the last manager and guard | the thread ends once nothing is unfinished |
//!
//! The body of a locked call is declared after its guard, and so dropped before it. In a child that was
//! forked none of them does anything: the locks are its parent's.

pub(crate) mod acquire;
mod commands;
mod downgrade;
mod effects;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod locks;
pub(crate) mod messages;
mod orphans;
mod outage;
pub(crate) mod release;
mod release_recheck;
mod release_retry;
mod renew;
mod revoked;
mod schedule;
mod services;
mod snapshot;
pub(crate) mod table;
mod try_acquire;
mod waiter;
