//! The expansion: a few calls of the runtime around the body, which stays where it was.
//!
//! Locals of ours have [`Span::mixed_site`](proc_macro2::Span::mixed_site) and a `__` in front: neither the user's
//! arguments nor their constants and unit structs can meet them.

mod blocking;
mod capture;
mod expansion;
mod key;
mod request;
mod return_type;
mod returns;
mod tokens;
mod wrapper;

pub(crate) use wrapper::{expand, key_call};
