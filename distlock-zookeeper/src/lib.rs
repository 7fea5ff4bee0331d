//! The nodes in ZooKeeper that `distlock` keeps locks in. Use the `distlock` crate with its feature `zookeeper`;
//! this one has no stability of its own.
//!
//! It knows names and tokens as texts, and nothing of what a lock is worth: that is the runtime's. An [`Ensemble`]
//! has a short session for the places of waiters, and one for the locks of each length of lease. A lock is a node
//! with an ephemeral one for each token that holds it or waits for it. See `nodes` for their names, and `acquire`
//! for how a token gets from one to the other.

mod acquire;
mod address;
mod client;
mod connection;
mod ensemble;
mod fault;
mod inspect;
mod nodes;
mod process_record;
mod queue;
mod release;
mod renew;
mod session;
mod waiters;
mod wire;

pub use acquire::{Ask, Granted, Reply};
pub use address::Address;
pub use ensemble::{Ensemble, Message, Settings};
pub use fault::{Fault, Kind};
pub use inspect::Held;
pub use release::Freed;
pub use renew::{Renewal, Renewed, Swap};
pub use session::Watch;
