//! The common part of the web frameworks: errors as responses, a lock around a handler, a lock as an argument of one.
//!
//! | file | concept |
//! |---|---|
//! | `problem` | the answer to a failed lock, and its line in the log |
//! | `template` | keys with path parameters as placeholders |
//! | `rule` | the configuration of a layer or a middleware |
//! | `arrival` | the limit on the time that a request's body takes |
//! | `locked` | the extractor's value, [`Locked`] |

pub(crate) mod arrival;
pub(crate) mod locked;
pub(crate) mod problem;
pub(crate) mod rule;
pub(crate) mod template;

pub use locked::{Defaults, FencingToken, Locked, LockedOptions};
pub use rule::{HasKey, KeyOrResponse, Keyed, MaybeKey, RouteKey, Unkeyed};
