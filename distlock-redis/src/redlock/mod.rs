//! Locks on a quorum of independent Redis servers: the token that has a lock at a majority holds it.
//!
//! The algorithm is Redlock, as the Redis documentation describes it: ask all nodes at once, count the lease from before
//! the request, release everywhere. This module adds fencing tokens over the quorum, a fair queue, and leases that are
//! renewed by majority and extended to all nodes. It does not wait for slow nodes, and does not trust nodes that have
//! restarted.
//!
//! Each node is a [`RedisStore`](crate::RedisStore) with its queue, its messages and its scripts. The files here send
//! requests to the nodes and count the replies with the core's [`redlock`](distlock_core::redlock).
//!
//! | file | contents |
//! |---|---|
//! | `store` | the implementation of the core's traits |
//! | `acquire`, `renew`, `release`, `queries`, `admin` | the operations of a quorum |
//! | `quorum` | [`QuorumStore`]: its servers, and how requests are counted |
//! | `request` | a request to several nodes at once |
//! | `stragglers` | replies that no call waits for any more |
//! | `split_votes` | waiters that have the votes of some nodes, but not of a majority |
//! | `fences` | fencing tokens and tickets |
//! | `node` | one node, and whether its replies count |
//! | `members` | the list of servers, which must be the same for every process |
//! | `identity`, `vote` | commands for one node besides those of any store |

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
