//! Locks in ZooKeeper, for `distlock`. Use the `distlock` crate with its feature `zookeeper`: this crate has no
//! stability of its own.
//!
//! An [`Ensemble`] has a short session for the places of waiters, and one session for the leases of each length. A
//! lock is a node. It contains an ephemeral node for each token that holds the lock or waits for it.
//!
//! - `address`: the URL
//! - `acquire`, `renew`, `release`: the commands for locks; `watches`: the messages about them
//! - `inspect`, `process_record`: everything that several processes and operators need
//! - `ensemble`: the sessions, with the tokens of this process in `waiters`
//! - `nodes`: the names of nodes
//! - `session`, `client`, `connection`, `wire`: ZooKeeper's protocol

mod acquire;
mod address;
mod client;
mod connection;
mod ensemble;
mod fault;
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

pub use acquire::{Ask, Granted, Reply};
pub use address::Address;
pub use ensemble::Message;
pub use fault::{Fault, Kind};
pub use inspect::Held;
pub use release::Freed;
pub use renew::{Renewal, Renewed, Swap};
pub use session::Watch;
pub use store::{Settings, ZooKeeperStore as Ensemble};
