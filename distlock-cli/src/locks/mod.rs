//! Which locks are held, by whom, and who waits.

pub(crate) mod held;
pub(crate) mod one;
pub(crate) mod pattern;
pub(crate) mod process;
pub(crate) mod walk;
