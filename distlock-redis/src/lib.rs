//! The store on Redis and Valkey that `distlock` keeps locks in. Use the `distlock` crate; this one has no stability of its
//! own.
//!
//! The way `SET NX` with a random value and compare-and-delete make a lock is the one that the Redis documentation
//! describes. It leaves out what this crate adds: fencing tokens that grow over lost data, a fair queue, and releases that
//! are never overtaken by commands that were sent before them.

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
