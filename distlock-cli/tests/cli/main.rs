//! The program, run as users run it: real processes, a real server.

mod command;
mod confined;
mod deployments;
mod doctor;
mod exit_codes;
mod lease;
mod looking;
mod sharing;
mod signals;
mod support;
mod table;
mod terminal;
#[cfg(feature = "top")]
mod top;
mod usage;
