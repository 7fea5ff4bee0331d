//! The client of a quorum of independent servers, as far as it has no I/O: votes, what they come to, and servers that have
//! restarted.

pub mod restart_guard;
pub mod tally;
pub mod votes;
