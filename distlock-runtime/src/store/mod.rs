//! The stores of this crate's own, and what stores have to do: [`Store`].

pub use distlock_core::store::*;
