//! The state machine of one lock in one process: which callers wait and hold, and what the store is asked.
//!
//! It has no store, clock, mutex, waker or task. Time is an argument, and everything to be done goes to a [`Shell`],
//! which carries it out. The product and the model (`verification/model`) have different shells for the same state
//! machine, so the model checks the code that runs.
//!
//! # Words
//!
//! - A **caller** is one call of this process that wants the lock. It becomes a **waiter** or a **holder**.
//! - A **batch** is a group of callers that arrived one after the other and want the lock with the same [`Limit`]. They
//!   share one place in the store's queue, under one **token**.
//! - A **claim** is a token that owns the lock at the store. Its holders come one after the other. Readers share one
//!   claim; it then has several holders. A batch for permits may have several claims.
//! - A **line** is the batches of one lock in order of arrival.
//! - A **look** is a command that asks the store whether it is the batch's turn. PROTOCOL.md calls it a poll.
//!
//! Nothing here assumes that a lock has one owner: how many may hold it is the [`Limit`] of each caller.
//!
//! # The stages of a batch
//!
//! ```text
//! Leading ──────────────► Owned            granted on the fast path (R2)
//!    │ another caller,      ▲ │            granted from the queue (R3)
//!    ▼ or not free          │ ▼            lost, or unfit for the next holder (R6, R10)
//!    └──────────────────► Queued
//! ```
//!
//! # Files
//!
//! Each file imports only files further down in this table. R1 to R13 are the rules of PROTOCOL.md; each is named where
//! it is carried out.
//!
//! | file | question |
//! |---|---|
//! | `relabel.rs` | Renaming, for the model |
//! | `hold.rs` | When does a lease end? Handing over, renewals, losses, downgrades, closing: R5, R6, R7, R10 |
//! | `acquire.rs` | When is a caller granted the lock? Arrivals, attempts, the queue, hints: R1 to R4, R8, R11 to R13 |
//! | `state.rs` | Who waits and who holds? The state, and the queries on it |
//! | `batch.rs` | Who is next? The stages of a batch, and its commands to the queue: R2, R3, R4, R6, R11 |
//! | `waiters.rs`, `queued.rs` | The waiters of a batch, and its place in the store's queue |
//! | `claim.rs`, `holder.rs` | The lease of a token, its fencing tokens and renewals, and its holders: R5, R6, R10 |
//! | `shell.rs`, `request.rs` | The boundary: what a line asks of the code around it, and what callers ask and learn |
//! | `release.rs` | What follows from the answer to a release: R7 |

mod acquire;
mod batch;
mod claim;
mod hold;
mod holder;
mod queued;
mod relabel;
mod release;
mod request;
mod shell;
mod state;
#[cfg(test)]
mod tests;
mod waiters;

pub use batch::{Batch, Stage};
pub use claim::{Claim, Claims, RenewalState};
pub use holder::{Holders, LocalHolder, Phase, Several};
pub use queued::Queued;
pub use relabel::{Relabel, position_of, relabel};
pub use release::{FollowUp, NextOwner, follow_up};
pub use request::{
    Arrival, AttemptOutcome, Denied, FaultClass, Finished, Freeing, Grant, Kinds, Loss, OwnAttempt,
    Position, Request,
};
pub use shell::{Closing, Downgrade, Enter, RESERVATION, Renew, Reservation, Shell};
pub use state::{Aside, Line, LostLease};
pub use waiters::{LocalWaiter, Waiters};

pub use crate::store::owner::TOKENS_PER_FENCE;
pub use crate::store::{Answer, Entered, Exchanged, Limit, Owned};
