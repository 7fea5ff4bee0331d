//! The state machine of one lock in one process, for the model that drives it. No part of the public
//! interface.

pub use crate::clock::Moment;
pub use crate::lock::core::*;
pub use crate::peers::asked::{Asker, PendingQuestions as Asked};
pub use crate::store::owner::RELEASE_REPEATS;
pub use crate::store::{Limit, Term};

/// What the answers of a quorum's nodes come to.
pub mod quorum {
    pub use distlock_core::redlock::restart_guard::RestartGuard;
    pub use distlock_core::redlock::tally::*;
    pub use distlock_core::redlock::votes::*;
}
