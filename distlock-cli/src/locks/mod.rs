//! The locks that are held, their holders and their waiters.

pub(crate) mod held;
pub(crate) mod one;
pub(crate) mod pattern;
pub(crate) mod process;
pub(crate) mod walk;
