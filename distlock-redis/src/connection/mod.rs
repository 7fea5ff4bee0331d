pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod discover;
pub(crate) mod error;
pub(crate) mod handshake;
pub(crate) mod io;
pub(crate) mod link;
pub(crate) mod previous;
pub(crate) mod replicas;
pub(crate) mod reply_check;
pub(crate) mod server_info;
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
pub(crate) mod tls;
