//! The state machine of one lock in one process, for the model that drives it. No part of the public
//! interface.

pub use crate::clock::Moment;
pub use crate::lock::core::*;
pub use crate::store::{Limit, Term};
