//! The locks that are held, their holders and their waiters; the commands that show and release them.

pub(crate) mod commands;
pub(crate) mod details;
pub(crate) mod held;
pub(crate) mod pattern;
pub(crate) mod process;
pub(crate) mod reader;
