//! Locks in the frameworks of users: a failed lock as their error, a lock around a handler or a service, a
//! lock as an argument. Each module has a feature of its name; `http` has the part that axum and actix-web
//! share.

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(any(feature = "axum", feature = "actix"))]
mod http;
#[cfg(feature = "tonic")]
mod tonic;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(any(feature = "axum", feature = "actix"))]
pub use http::{FencingToken, Locked, LockedOptions, RouteKey};
