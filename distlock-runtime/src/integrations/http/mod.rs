//! What a web framework needs of locks: errors as responses, a lock around a handler, a lock as an
//! argument of one.
//!
//! What both frameworks share is here: the answer to a failed lock (`problem`, logged by
//! `answered`), templates filled from path parameters (`template`), the configuration of a layer or a
//! middleware (`rule`, with the methods of `setters`), the bound on the time a body takes (`arrival`), and the extractor's value
//! ([`Locked`]). `axum` and `actix` beside this folder fit it into theirs.

mod answered;
pub(crate) mod arrival;
mod fencing;
mod keyed;
pub(crate) mod locked;
pub(crate) mod problem;
pub(crate) mod route_key;
pub(crate) mod rule;
pub(crate) mod setters;
pub(crate) mod template;

pub use fencing::FencingToken;
pub use keyed::{HasKey, Keyed, Unkeyed};
pub use locked::{Defaults, Locked, LockedOptions};
pub use route_key::RouteKey;
pub use rule::{KeyOrResponse, MaybeKey};
