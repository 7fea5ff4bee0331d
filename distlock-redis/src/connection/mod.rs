//! Connections to servers.
//!
//! | file | contents |
//! |---|---|
//! | `link` | a connection that reconnects, and the pool of links to one server |
//! | `live` | a connection that is up: sends commands, and checks their replies |
//! | `reply_check` | how to recognize the replies to an attempt |
//! | `replicas` | the `WAIT` commands of a connection |
//! | `connect` | opening a connection |
//! | `tls`, `tls_off` | TLS, and its replacement without the feature `tls` |
//! | `handshake` | the first commands on a connection |
//! | `server_info` | the server's description of itself |
//! | `previous` | closing earlier connections of a link at the server |
//! | `discover` | finding the server that a link connects to |
//! | `error` | errors of the client library as faults |
//! | `io` | who moves the bytes of a connection |

pub(crate) mod connect;
pub(crate) mod discover;
pub(crate) mod error;
pub(crate) mod handshake;
pub(crate) mod io;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod previous;
pub(crate) mod replicas;
pub(crate) mod reply_check;
pub(crate) mod server_info;
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
pub(crate) mod tls;
