//! Locks in etcd, for `distlock`. Use the `distlock` crate with its feature `etcd`; this one has no stability of its
//! own.
//!
//! Each token that holds a lock or waits for it has one key under the name of the lock, with a lease. The keys are
//! ordered by the revisions that created them, and the first ones hold the lock: nothing is written when a token's turn
//! comes. A waiter watches the key ahead of it.
//!
//! The modules, from the wire up:
//!
//! - `proto` has the messages of etcd, `grpc` sends them, `tls_detection` recognizes a port that expects TLS
//! - `connection` opens the connection and reopens it, with the `watch`es of each
//! - `keys` and `queue` say where a token is stored, and which tokens hold the lock
//! - `fence`, `lease` and `keep_alive` maintain fencing tokens and leases
//! - `waiters` has the tokens of this process, and `ordering` the commands under way
//! - `client` combines these; `acquire`, `operations` and `process_records` are its commands
//! - `store` implements [`Store`](distlock_core::store::Store)

mod acquire;
mod address;
mod client;
mod connection;
mod fault;
mod fence;
mod grpc;
mod keep_alive;
mod keys;
mod lease;
mod operations;
mod ordering;
mod process_records;
mod proto;
mod queue;
mod store;
mod tls_detection;
mod waiters;
mod watch;

pub use address::EtcdAddress;
pub use store::{EtcdConfig, EtcdStore};
