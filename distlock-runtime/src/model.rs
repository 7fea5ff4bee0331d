//! The state machine of one lock in one process, for the model that drives it. No part of the public
//! interface.

use std::time::Duration;

pub use crate::clock::Moment;
pub use crate::lock::core::*;
pub use crate::peers::asked::{Asker, PendingQuestions as Asked};
pub use crate::store::{Limit, Term};

/// The pauses after which a release is repeated while bytes of an acquire may still be on their way (R9).
pub const RELEASE_REPEATS: [Duration; 3] = crate::lock::release_retry::RELEASE_REPEATS;

/// What the answers of a quorum's nodes come to.
#[cfg(feature = "redis")]
pub mod quorum {
    pub use crate::store::quorum::guard::RestartGuard;
    pub use crate::store::quorum::tally::*;
    pub use crate::store::quorum::votes::*;
    pub use crate::store::redis::vote::Accepted;
}
