//! Locks in ZooKeeper, for `distlock`. Use the `distlock` crate with its feature `zookeeper`: this crate has no
//! stability of its own.
//!
//! A [`ZooKeeperStore`] has a short session for the places of waiters, and one session for the leases of each length. A
//! lock is a node. It contains an ephemeral node for each token that holds the lock or waits for it.
//!
//! - `address`: the URL
//! - `store`: the trait [`Store`](distlock_core::store::Store)
//! - `acquire`, `renew`, `exchange`, `release`: the commands for locks; `watches`: the notifications about them
//! - `inspect`, `process_record`: everything that several processes and operators need
//! - `ensemble`: the sessions, with the tokens of this process in `waiters`
//! - `nodes`: the names of nodes
//! - `session`, `client`, `connection`, `wire`: ZooKeeper's protocol

mod acquire;
mod address;
mod client;
mod connection;
mod ensemble;
mod exchange;
mod inspect;
mod nodes;
mod process_record;
mod release;
mod renew;
mod session;
mod store;
mod waiters;
mod watches;
mod wire;

pub use address::ZooKeeperAddress;
pub use store::{ZooKeeperConfig, ZooKeeperStore};
