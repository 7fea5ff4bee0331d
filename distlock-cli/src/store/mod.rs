//! The store that the command line or the environment names.

mod named;
mod place;
pub(crate) mod secret;

pub(crate) use named::{Named, StoreOptions};
