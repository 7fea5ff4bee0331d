//! The expansion: a few calls of the runtime around the body, which stays where the user wrote it.
//!
//! Generated local variables have the hygiene of [`Span::mixed_site`](proc_macro2::Span::mixed_site) and a name that
//! begins with `__`, so they cannot collide with the user's arguments, constants or unit structs.

mod expansion;
mod key;
mod request;
mod return_type;
mod tokens;
mod wrapper;

pub(crate) use wrapper::{expand, key_call};
