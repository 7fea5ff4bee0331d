//! The Postgres store of `distlock`. Use the `distlock` crate with its feature `postgres`. The API of this crate is not
//! stable.
//!
//! A [`PostgresStore`] keeps owner tokens in a table of leases. Its rules are those of the Redis store, with two
//! differences. A function of the database locks the name of a lock while it runs, so all others see it as one step, as
//! with a script in Redis. One statement renews any number of leases.
//!
//! The store's pool has several links for commands and one connection that listens for messages. Each link opens its
//! connection again when the connection is lost. Each command calls one function of the database, in one statement and
//! one round trip. The file `schema.sql` defines the functions. No command relies on the state that another has left in
//! its session, because a pooler may give each transaction to another connection.

mod acquire;
mod commands;
mod connect;
mod database;
mod error;
mod link;
mod listen_demand;
mod listener;
mod messages;
mod operations;
mod pool;
mod schema;
mod session;
mod store;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use schema::SCHEMA;
pub use store::{PostgresSettings, PostgresStore};
pub use tls::PostgresTls;
pub use url::{PostgresUrl, TlsFiles};
