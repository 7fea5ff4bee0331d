//! How a connection's bytes are moved, and on which thread.
//!
//! The client library's driver is a future: it takes commands from a channel, writes them, reads
//! answers and hands them out. [`Carry`] is what the rest of the store knows of it, and there are two
//! ways:
//!
//! - [`Driver`]: the manager's own thread polls it. A caller that sends a command polls it once as well,
//!   to write the command itself, which needs no reactor.
//! - [`CallerDriver`]: the same, and while the tasks of a runtime send many commands, a task on *that*
//!   runtime polls it, and its reactor watches the socket.
//!
//! Commands for locks use the second way unless
//! `LockManagerBuilder::io_on_caller_runtime` is off. Renewals and the
//! subscription always use the first: they belong to the manager's thread.
//!
//! # When the second way pays
//!
//! With the first way an answer wakes the manager's thread, which wakes the caller's: one thread that
//! wakes another costs 10 to 20 µs, twice for each lock. With the second way the thread that reads an
//! answer runs the task that waits for it, and writes what that task sends next. On loopback, where a
//! round trip takes no longer than that, a lone task acquired a lock in 11 instead of 17 µs, for half
//! the CPU. With 0.25 ms of network each way the wake-up drowns in the round trip: what is left is CPU,
//! 9 instead of 16 µs a lock with 100 tasks. `docs/guide/io.md` has the figures.
//!
//! # What it costs
//!
//! - A user's runtime may be blocked, or end: the manager's thread checks every 10 ms, and takes the
//!   connection back from a task that was woken and did not run. Calls of that time wait up to 30 ms.
//!   After that the runtime is left alone for 100 ms, and twice as long each time, up to 10 s.
//! - tokio tells only by a panic whether a runtime watches sockets. On one that does not there is one
//!   panic, which is caught; a user's panic hook runs.
//! - One small task on the user's runtime, which shows in its metrics.
//!
//! # Files, each using only those before it
//!
//! - `socket`: a socket, and one that changes reactor
//! - `placement`: which side drives the connection at present
//! - `driver`: the trait, how a command is sent through it, and the first way
//! - `caller_driver`: the second way

mod caller_driver;
mod driver;
mod placement;
mod socket;

pub(crate) use caller_driver::CallerDriver;
pub(crate) use driver::{Carry, ClientDriver, Driver, carry};
pub(crate) use socket::{PortableSocket, Socket};
