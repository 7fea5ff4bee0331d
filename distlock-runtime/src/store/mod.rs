//! The stores of this crate's own, and what stores have to do: [`Store`].

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod memory;
mod memory_line;

pub use distlock_core::store::*;
