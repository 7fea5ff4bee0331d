pub(crate) mod connect;
pub(crate) mod discover;
pub(crate) mod error;
pub(crate) mod eviction;
pub(crate) mod greeting;
pub(crate) mod io;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod marks;
pub(crate) mod pairing;
pub(crate) mod previous;
pub(crate) mod replicas;
pub(crate) mod server_clock;
pub(crate) mod server_info;
pub(crate) mod sign_in;
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
pub(crate) mod tls;
