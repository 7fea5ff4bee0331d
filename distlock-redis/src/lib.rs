//! The store on Redis and Valkey that `distlock` keeps locks in. Use the `distlock` crate; this one has no stability of its
//! own.
//!
//! The Redis documentation describes how `SET NX` with a random value and compare-and-delete make a lock. This crate adds
//! fencing tokens that keep growing after a loss of data, a fair queue, and releases that are never overtaken by commands
//! that were sent before them.
//!
//! # Rooms
//!
//! A command of [`RedisStore`] takes this way: `store` → `routing` → `connection` → `commands` → `connection` → server.
//!
//! | room | contents |
//! |---|---|
//! | `store` | [`RedisStore`], which implements the core's traits |
//! | `commands` | acquire, queue, renew, release and inspect locks; fence counters; the first contact |
//! | `script`, `lua/` | the Lua scripts, and the commands that run them |
//! | `connection` | connections that reconnect: TLS, the handshake, who drives the socket, checks of replies |
//! | `node` | one server: its links and its subscription |
//! | `routing` | the node that has a lock, and the route of a command to it |
//! | `cluster`, `slots`, `redirect`, `addr` | Redis Cluster: the nodes, the map of slots, and redirections |
//! | `sentinel` | Redis Sentinel: the primary, by the votes of the sentinels |
//! | `pubsub` | messages between processes: wake-ups of waiters, and the subscription to them |
//! | `record` | the records of processes, which tell operators who holds a lock |
//! | [`redlock`] | [`QuorumStore`](redlock::QuorumStore): locks on a majority of independent servers |
//! | [`url`] | URLs of Redis |

mod addr;
mod cluster;
mod commands;
mod connection;
mod node;
mod pubsub;
mod record;
mod redirect;
pub mod redlock;
mod routing;
mod script;
mod sentinel;
mod slots;
mod store;
pub mod url;

pub use connection::replicas::Replicas;
pub use connection::tls::TlsClient;
pub use sentinel::sentinels::Sentinels;
pub use store::{RedisConfig, RedisServers, RedisStore};

/// The scripts as servers get them, for tests that run them one at a time.
pub mod scripts {
    pub use crate::script::{Step, text};
}
