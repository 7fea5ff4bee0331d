//! Moving a connection's bytes: on the engine's thread, by callers, or on a caller's runtime.
//!
//! - `portable_socket`: the socket, which can change the reactor that watches it
//! - `placement`: which side drives the connection at present
//! - `doorbell`: wakes that side
//! - `driver`: the client library's driver, polled by one side at a time
//! - `caller_driver`: the task that polls it on a caller's runtime
//! - `carry`: sends a command, and decides where the connection is driven

mod caller_driver;
mod carry;
mod doorbell;
mod driver;
mod placement;
mod portable_socket;
mod traffic;

pub(super) use carry::carry;
pub(super) use driver::{Bytes, Driver};
pub(super) use portable_socket::{PortableSocket, SocketMover};
