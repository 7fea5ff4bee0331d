//! The stores of this crate's own, and what stores have to do: [`Store`].

pub(crate) mod memory;
mod memory_line;

pub use distlock_core::store::*;
