//! What becomes of one lock in one process: a state machine without a store, a clock, a mutex, a waker
//! or a task. Time is an argument, and what is to be done goes to a [`Shell`], which carries it out.
//! The product's shell is `lock::table`; the model has another one, so that what it checks is this
//! code.
//!
//! A lock's [`Line`] is its batches in order of arrival. A batch is neighbours that share one place of
//! the store's queue and one owner token:
//!
//! ```text
//! Leading ──────────────► Owned            the fast path (R2)
//!    │ another caller,      ▲ │            granted (R3)
//!    ▼ or not free          │ ▼            lost, or unfit for the next holder (R6, R10)
//!    └──────────────────► Queued
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `line.rs` | which callers of this process wait and hold: the state, and what can be asked of it |
//! | `acquire.rs` | R1 to R4, R8, R11 to R13: from the arrival of a caller to its grant |
//! | `hold.rs` | R5, R6, R7, R10: from the grant of a lease to its end |
//! | `batch.rs`, `waiters.rs`, `queued.rs` | the callers that wait together, and their place in the store's queue |
//! | `claim.rs`, `holder.rs` | what owns the lock at the store, and the callers that hold it by that |
//! | `request.rs`, `shell.rs` | what callers ask and learn, and what is asked of the code around a line |
//! | `release.rs` | R7: what follows from the answer to a release |
//!
//! Nothing here says that a lock has one owner. How many may have it is the [`Limit`] of the caller: a
//! batch has [`Claims`], of permits several, and a claim has [`Holders`], of readers several.

// Public for the model, which is built with the feature `model`.
#![allow(unreachable_pub, unused_imports)]

mod acquire;
mod batch;
mod claim;
mod hold;
mod holder;
mod line;
mod queued;
#[cfg(feature = "model")]
mod relabel;
mod release;
mod request;
mod shell;
#[cfg(test)]
mod tests;
mod waiters;

#[cfg(any(feature = "model", test))]
pub use crate::store::owner::TOKENS_PER_FENCE;
pub use crate::store::{Answer, Entered, Exchanged, Limit, Owned};
pub use batch::{Batch, Stage};
pub use claim::{Claim, Claims, Renewal};
pub use holder::{Holder, Phase};
#[cfg(feature = "model")]
pub use holder::{Holders, Several};
pub use line::Line;
#[cfg(feature = "model")]
pub use line::{Aside, Lost};
pub use queued::Queued;
#[cfg(feature = "model")]
pub use relabel::Relabel;
pub use release::{FollowUp, NextOwner, follow_up};
pub use request::{
    Arrival, Attempt, Denied, Fault, Finished, Freeing, Grant, Kinds, Loss, Place, Request, Tried,
};
pub use shell::{Closing, Enter, Exchange, RESERVATION, Renew, Reservation, Shell};
pub use waiters::{Waiters, Waiting};
