//! The queues in etcd that `distlock` keeps locks in. Use the `distlock` crate with its feature `etcd`; this one
//! has no stability of its own.
//!
//! It knows names and tokens as texts, and nothing of what a lock is worth: that is the runtime's. Each token that
//! has a lock, or waits for it, has one key under the name of the lock, with a lease that goes with the process.
//! The keys stand in the order in which they came to be, and those in front hold the lock: nothing is written when
//! a turn comes. A waiter watches the key in front of it.
//!
//! From the wire up: `proto` is what is sent to etcd, `grpc` how, and `link` over which
//! connection; `sequence` keeps the order of commands, `order` says which tokens hold a lock, `fence` and
//! `lease` what goes with it, `watch` and `place` what this process hears and has. [`Queues`] is all of them:
//! `acquire` and `keep` are its commands, `record` says which processes there are, `tend` runs beside them.

mod acquire;
mod address;
mod client;
mod connection;
mod fault;
mod fence;
mod grant;
mod grpc;
mod keep_alive;
mod keys;
mod lease;
mod operations;
mod ordering;
mod pagination;
mod process_records;
mod proto;
mod queue;
mod tls_detection;
mod waiters;
mod watch;

pub use acquire::{Ask, Granted, Reply};
pub use address::Address;
pub use client::{Note, Queues};
pub use connection::{Live, Settings, Watch};
pub use fault::{Fault, Kind};
pub use operations::{Freed, Held, Renewal, Renewed, Swap};
pub use ordering::Under;
pub use watch::Message;
