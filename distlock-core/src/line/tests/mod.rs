//! The rules on one line, with a shell that records what the line asks of it.

pub(super) mod bench;
mod rules;
mod shared;
