//! The lease table in Postgres that `distlock` keeps locks in. Use the `distlock` crate with its feature
//! `postgres`; this one has no stability of its own.
//!
//! It knows names and tokens as texts, and nothing of what a lock is worth: that is the runtime's. A
//! [`Table`] has some [links](Live) for commands, each a connection that is made again when it is lost, and
//! one that listens for messages. What a command does is in `schema.sql`: each is one function of the
//! database, one statement and one round trip. None relies on what another one has set, and none is prepared under
//! a name where a pooler might give each to another connection.

#[cfg(feature = "tls")]
mod binding;
mod commands;
mod connect;
mod database;
mod error;
mod fence;
mod left;
mod link;
mod listener;
mod messages;
mod pool;
mod request;
mod schema;
mod select;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use error::{Fault, Kind};
pub use fence::Fence;
pub use link::Watch;
pub use listener::Message;
pub use pool::{Settings, Table};
pub use request::{Ask, Freed, Granted, Held, Record, Renewal, Reply, Swap};
pub use schema::SCHEMA;
pub use session::Live;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use url::{Address, Files};
