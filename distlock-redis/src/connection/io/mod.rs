//! Moves the bytes of a connection, on the engine's thread or on a caller's.
//!
//! The client library's side of a connection is a future: it takes commands from a channel, writes them, reads replies
//! and hands them out. A [`Driver`] polls that future in one of two ways:
//!
//! 1. On the engine. A caller that sends a command polls the future once as well, to write the command itself, which
//!    needs no reactor.
//! 2. In a task on a caller's runtime, whose reactor then watches the socket. The driver changes to this way while the
//!    tasks of one runtime send many commands, and back when they stop.
//!
//! Connections for locks may use the second way unless `LockManagerBuilder::io_on_caller_runtime` is off. Renewals and
//! the subscription always use the first way, because they belong to the engine.
//!
//! # When the second way pays
//!
//! With the first way a reply wakes the engine's thread, which wakes the caller's. One thread that wakes another costs
//! 10 to 20 µs, twice for each lock. With the second way the thread that reads a reply runs the task that waits for it,
//! and writes that task's next command. On loopback, where a round trip takes no longer than that, a single task
//! acquired a lock in 11 instead of 17 µs, for half the CPU. With 0.25 ms of network latency each way the wake-up time
//! no longer matters. The saved CPU remains: 9 instead of 16 µs per lock with 100 tasks. `docs/guide/io.md` has the
//! figures.
//!
//! # What it costs
//!
//! - A user's runtime may be blocked, or end. The engine therefore checks every 10 ms and takes the connection back
//!   from a task that was woken and did not run. Calls wait up to 30 ms in that case. The runtime is then left alone
//!   for 100 ms, and twice as long each time, up to 10 s.
//! - tokio reveals only by a panic that a runtime does not watch sockets. On such a runtime there is one panic. It is
//!   caught, but a user's panic hook runs.
//! - One small task on the user's runtime, which shows up in its metrics.
//!
//! | file | contents; each file uses only those above it |
//! |---|---|
//! | `socket` | a socket, and a socket that changes its reactor |
//! | `placement` | which side drives a connection at present, and when to change that |
//! | `driver` | how the future is polled, and how a command is sent through it |

mod driver;
mod placement;
mod socket;

pub(crate) use driver::{ClientDriver, Driver, send_over};
pub(crate) use socket::{PortableSocket, Socket};
