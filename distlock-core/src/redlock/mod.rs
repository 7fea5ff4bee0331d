//! The client of a quorum of independent servers, as far as it has no I/O: votes, what they come to, and servers that have
//! restarted.

mod restart_guard;
mod tally;
mod votes;

pub use restart_guard::*;
pub use tally::*;
pub use votes::*;
