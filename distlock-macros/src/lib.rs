//! The procedural macros of `distlock`. Use the `distlock` crate, which re-exports and documents
//! them.
//!
//! An annotated function goes through the modules in this order: [`options`] (with [`key`] and
//! [`duration`] for the values) → [`function`] → [`check`] → [`expand`]. Mistakes found on the way
//! are collected and handed out together by [`fallback`], with the function unchanged.

mod check;
mod duration;
mod expand;
mod fallback;
mod function;
mod key;
mod options;
mod suggest;

use proc_macro2::TokenStream;

use crate::fallback::Errors;
use crate::function::Function;
use crate::options::{KeyCall, Options};

/// Runs an `async fn` under a distributed lock. Documented in the `distlock` crate.
#[proc_macro_attribute]
pub fn redis_lock(
    args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    lock_function(args.into(), item.into()).into()
}

/// Makes a checked, escaped `LockKey` from a template. Documented in the `distlock` crate.
#[proc_macro]
pub fn key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    make_key(input.into()).into()
}

fn lock_function(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = Options::parse(args, &mut errors);
    let function = Function::parse(item.clone(), &mut errors);
    let lock = check::check(options, function.as_ref(), &mut errors);
    match (function, lock, errors.into_compile_errors()) {
        (Some(function), Some(lock), None) => expand::expand(&lock, &function),
        (_, _, errors) => fallback::fallback(errors, item),
    }
}

fn make_key(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let call = KeyCall::parse(input, &mut errors);
    match (call, errors.into_compile_errors()) {
        (Some(call), None) => expand::key_call(&call),
        (_, errors) => errors.unwrap_or_default(),
    }
}
