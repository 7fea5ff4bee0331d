//! Locks on a quorum of independent Redis servers: a lock is held by the token that has it at a majority.
//!
//! The way of a majority is Redlock's, as the Redis documentation describes it: ask all at once, count
//! from before the question, release everywhere. What it leaves out is here: fencing tokens over the
//! quorum, first come first served, nodes that are not waited for, leases that are renewed by majority and
//! come to rest on all nodes, and nodes that have restarted.
//!
//! Each node is a [`RedisStore`] of its own, with its queue, its messages and its scripts; this is what
//! counts their answers.
//!
//! - `node`: one of them; `members`: whether it belongs to the quorum; `guard`: since when its answers count
//! - `request`: a question to all; `late`: answers that are not waited for; `votes`: what the answers come to
//! - `fences`: fencing tokens and tickets; `missing`: errors that name the servers that did not answer
//! - `split_votes`: waiters that have some nodes, and none a majority
//! - `take`: trying and waiting; `keep`: renewing and exchanging; `free`: releasing; `look`: questions that
//!   change nothing; `console`: what tools ask

mod acquire;
mod admin;
mod fences;
pub(crate) mod identity;
mod members;
mod node;
mod queries;
mod quorum;
mod release;
mod renew;
mod request;
mod split_votes;
mod store;
mod stragglers;
pub(crate) mod vote;

pub use quorum::QuorumStore;
