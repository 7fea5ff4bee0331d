//! What a web framework needs of locks: errors as responses, a lock around a handler, a lock as an
//! argument of one.
//!
//! What both frameworks share is here: the answer to a failed lock (`problem`), templates filled
//! from path parameters (`template`), what a layer or a middleware is told (`rule`), and the
//! extractor's value ([`Locked`]). `axum` and `actix` fit it into theirs.

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
mod locked;
mod problem;
mod rule;
mod template;

pub use locked::Locked;
