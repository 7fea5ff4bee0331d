//! The lease table in Postgres that `distlock` keeps locks in. Use the `distlock` crate with its feature
//! `postgres`. The API of this crate is not stable.
//!
//! A pool has several links for commands and one connection that listens for messages. Each link opens its
//! connection again when the connection is lost. Each command calls one function of the database, in one statement and
//! one round trip. The file `schema.sql` defines the functions. No command relies on the state that another has left in
//! its session, because a pooler may give each transaction to another connection.

mod commands;
mod connect;
mod database;
mod error;
mod link;
mod listener;
mod pool;
mod schema;
mod session;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use commands::{Ask, Freed, Granted, Held, Record, Renewal, Reply, Swap};
pub use database::FenceSequence;
pub use error::{PostgresError as Fault, PostgresErrorKind as Kind};
pub use link::LinkObserver as Watch;
pub use listener::ListenEvent as Message;
pub use pool::{PoolSettings as Settings, PostgresPool as Table};
pub use schema::SCHEMA;
pub use session::PostgresSession as Live;
#[cfg(feature = "tls")]
pub use tls::PostgresTls as Tls;
pub use url::{PostgresUrl as Address, TlsFiles as Files};
