//! The state machine of one lock in one process, for the model that drives it. No part of the public
//! interface.

use std::time::Duration;

pub use crate::clock::Moment;
pub use crate::lock::core::*;
pub use crate::store::{Limit, Term};
pub use crate::who::{Asked, Asker};

/// The pauses after which a release is repeated while bytes of an acquire may still be on their way (R9).
pub const RELEASE_REPEATS: [Duration; 3] = crate::lock::release_retry::RELEASE_REPEATS;

/// What the answers of a quorum's nodes come to.
pub mod quorum {
    pub use distlock_core::redlock::restart_guard::RestartGuard;
    pub use distlock_core::redlock::tally::*;
    pub use distlock_core::redlock::votes::*;
}
