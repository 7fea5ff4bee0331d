//! The decisions of a client of several independent servers (the Redlock algorithm), without I/O.
//!
//! A lock is held if a majority of the servers has granted it. Each question goes to all servers at once:
//!
//! | question | ballots | tally | result |
//! |---|---|---|---|
//! | a try | [`Tally::tried`] | yes | [`Tried`] |
//! | an entry into the queue | [`Tally::entered`] | yes | [`Stands`] |
//! | a renewal | [`Tally::renewed`] | yes | [`Verdict`] |
//! | a proposed fencing token | [`accepted`] | no | [`Drawn`] |
//!
//! - [`Votes`] counts the ballots of one question. Its [`Verdict`] says whether a majority is reached, or cannot be any more.
//! - [`Tally`] collects the rest of the answers: when the lock may be free, and the place in the queues.
//! - [`RestartGuard`] tells whether a server's yes counts. A server that has restarted may have forgotten its locks.
//! - [`proposal`] and [`median`] choose fencing tokens and tickets, because independent servers have no common counter.
//!
//! The commands, the connections and the deadlines are in `distlock-redis/src/redlock`. The model of a quorum
//! (`verification/model`) runs this code, too.

mod restart_guard;
mod tally;
mod votes;

pub use restart_guard::{RestartGuard, relies_for, watch_for};
pub use tally::{Accepted, Answered, Drawn, Stands, Tally, Tried, accepted, median, proposal};
pub use votes::{Ballot, Verdict, Votes, majority};
