//! The return types of locked functions: how a failed lock becomes the value that the function returns.
//!
//! Traits decide about a type, and not its spelling, so that aliases of `Result` work.

use std::io::{self, Write};

use crate::error::LockError;
use crate::observe;

/// Declares a trait, and adds notes about the features that are on to the compiler's message for a type without it.
macro_rules! with_notes {
    (
        axum: $axum:literal, actix: $actix:literal, neither: $neither:literal,
        $(#[$attribute:meta])*
        pub trait $name:ident { $($body:tt)* }
    ) => {
        $(#[$attribute])*
        #[cfg_attr(feature = "axum", diagnostic::on_unimplemented(note = $axum))]
        #[cfg_attr(feature = "actix", diagnostic::on_unimplemented(note = $actix))]
        #[cfg_attr(
            not(any(feature = "axum", feature = "actix")),
            diagnostic::on_unimplemented(note = $neither)
        )]
        pub trait $name { $($body)* }
    };
}

with_notes! {
    axum: "a handler of axum says `-> impl IntoResponse`: then the error is its response",
    actix: "a handler of actix-web says `-> impl Responder`: then the error is its response",
    neither: "axum's `Response` and actix-web's `HttpResponse` will do with the feature `axum` or `actix` of distlock",

    /// A return type of a locked function. It can report that the lock was not taken, or was lost.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made from a `distlock::LockError`",
        label = "a locked function must be able to return a `LockError`",
        note = "return a `Result` whose error is `From<distlock::LockError>`, or say what to return instead with `on_fail = |error| …`"
    )]
    pub trait FromLockError {
        /// Makes the value that the function returns instead of its body's.
        fn from_lock_error(error: LockError) -> Self;
    }
}

impl<T, E: LockFailure> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from_failure(error))
    }
}

with_notes! {
    axum: "of axum's types `StatusCode`, `(StatusCode, String)` and `axum::response::ErrorResponse` will do",
    actix: "of actix-web's types `actix_web::Error` will do",
    neither: "axum's `StatusCode` and actix-web's `Error` will do with the feature `axum` or `actix` of distlock",

    /// The error of a locked function's `Result`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made from a `distlock::LockError`",
        label = "the error of a locked function must be `From<distlock::LockError>`",
        note = "make it with `map_err = |error| …`; or, for a type of your own, write `impl From<distlock::LockError> for {Self}`, or with thiserror a variant `Lock(#[from] distlock::LockError)`"
    )]
    pub trait LockFailure {
        /// Makes the error that the function returns.
        fn from_failure(error: LockError) -> Self;
    }
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> LockFailure for E {
    fn from_failure(error: LockError) -> Self {
        error.into()
    }
}

/// A return type for which `map_err` makes the error: a `Result`.
#[diagnostic::on_unimplemented(
    message = "`map_err` makes the error of a `Result`, and `{Self}` is none",
    label = "not a `Result`",
    note = "for other types say what to return with `on_fail = |error| …`"
)]
pub trait IsResult {
    /// The error of the `Result`.
    type Error;

    /// Returns the result of `map_err = function`. The call fixes the type of a closure's argument.
    fn map_err<F: FnOnce(LockError) -> Self::Error>(function: F, error: LockError) -> Self;
}

impl<T, E> IsResult for Result<T, E> {
    type Error = E;

    fn map_err<F: FnOnce(LockError) -> E>(function: F, error: LockError) -> Self {
        Err(function(error))
    }
}

/// A return type with a value for `on_fail = skip`, if the lock is held elsewhere.
#[diagnostic::on_unimplemented(
    message = "`on_fail = skip` has nothing to return: `{Self}` is not `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`",
    label = "there is no value for \"skipped\"",
    note = "return an `Option`, or say what to return with `on_fail = |error| …`"
)]
pub trait Skip {
    /// Returns the value of a function that had nothing to do.
    fn skip() -> Self;
}

impl Skip for () {
    fn skip() -> Self {}
}

impl<T> Skip for Option<T> {
    fn skip() -> Self {
        None
    }
}

impl<E> Skip for Result<(), E> {
    fn skip() -> Self {
        Ok(())
    }
}

impl<T, E> Skip for Result<Option<T>, E> {
    fn skip() -> Self {
        Ok(None)
    }
}

/// The option `on_fail = skip` of a function that returns `R`.
///
/// It swallows no other error than "held elsewhere". If `R` can be made from an error, method resolution finds
/// [`OrReturn`] first, and otherwise [`OrLog`].
pub struct Skipping<R> {
    skip: fn() -> R,
}

/// Begins `on_fail = skip`.
pub fn skipping<R: Skip>() -> Skipping<R> {
    Skipping { skip: R::skip }
}

impl<R> Skipping<R> {
    /// Returns the value of a function whose lock is held elsewhere, and logs that the function did not run.
    pub fn skip_held(&self, error: &LockError) -> R {
        observe::skipped(error);
        self.skip()
    }

    fn skip(&self) -> R {
        (self.skip)()
    }
}

/// Returns other errors through the return type.
pub trait OrReturn<R> {
    /// Returns the value of the function.
    fn return_or_log(&self, error: LockError) -> R;
}

impl<R: FromLockError> OrReturn<R> for Skipping<R> {
    fn return_or_log(&self, error: LockError) -> R {
        R::from_lock_error(error)
    }
}

/// Logs other errors, because the return type has no place for them.
pub trait OrLog<R> {
    /// Returns the value of the function.
    fn return_or_log(&self, error: LockError) -> R;
}

impl<R> OrLog<R> for &Skipping<R> {
    fn return_or_log(&self, error: LockError) -> R {
        // Without a log, nobody would notice a job that never runs.
        if !tracing::dispatcher::has_been_set() {
            let _ = writeln!(io::stderr(), "distlock: not run: {error}");
        }
        observe::not_returned(&error);
        self.skip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Mine;

    impl From<LockError> for Mine {
        fn from(_: LockError) -> Self {
            Self
        }
    }

    type Alias<T> = Result<T, Mine>;

    #[test]
    fn any_result_whose_error_takes_a_lock_error_will_do() {
        assert!(matches!(Alias::<u8>::from_lock_error(LockError::Closed), Err(Mine)));
        assert!(matches!(
            Result::<(), LockError>::from_lock_error(LockError::Closed),
            Err(LockError::Closed)
        ));
        let boxed = Result::<(), Box<dyn std::error::Error>>::from_lock_error(LockError::Closed);
        assert!(boxed.is_err_and(|error| error.to_string().contains("closed")));
    }

    #[test]
    fn skipping_returns_other_errors_where_it_can() {
        /// As generated code calls it.
        macro_rules! fail {
            ($ty:ty) => {{
                let skipping = &skipping::<$ty>();
                skipping.return_or_log(LockError::Closed)
            }};
        }
        assert!(fail!(Result<(), Mine>).is_err());
        assert!(fail!(Alias<Option<u8>>).is_err());
        // No place for an error: it is logged.
        fail!(());
        assert_eq!(fail!(Option<u8>), None);
        assert_eq!(fail!(Result<(), u8>), Ok(()));
        assert!(skipping::<Alias<()>>().skip_held(&LockError::Closed).is_ok());
    }
}
