//! Reports of what happens to locks: the trait [`Observer`] and its events.
//!
//! The log is an observer that every manager has. The guide's page on observability lists its events, and
//! says when to be alerted of which.
//
// Events that a call causes are reported in its own task. Losses and failures in the background are reported
// on the thread of the log. Everything is reported after it has happened and while no mutex is held, and a
// panic of an observer is caught here.

mod account;
mod calls;
#[cfg(test)]
pub(crate) mod documented;
mod link;
mod log;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
pub(crate) mod metrics;
mod observer;
mod observers;
pub(crate) mod probe;
mod span;

pub(crate) use account::Account;
#[doc(hidden)]
pub use calls::Calls;
pub(crate) use log::{not_returned, skipped, term_failed};
pub(crate) use metrics::InLine;
pub(crate) use observer::Verb;
pub use observer::{
    Acquired, Command, Connection, Lost, Observer, Refused, Released, ReleasedLate, Renewed, Via,
    Waiting,
};
pub(crate) use observers::{Listening, Observers};
pub(crate) use probe::LeaseEvent;
pub(crate) use span::{WaitSpan, in_acquire_span};

pub use crate::error::LostReason;
