//! How a failed lock becomes the return value of the function it guards.
//!
//! Traits decide, not the spelling of the return type, so that aliases of `Result` work.

use std::io::{self, Write};

use crate::error::LockError;
use crate::observe;

/// The return type of a locked function: it can say that the lock was not taken, or was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a `distlock::LockError`",
    label = "a locked function must be able to return a `LockError`",
    note = "return a `Result` whose error is `From<distlock::LockError>`, or say what to return instead with `on_fail = |error| …`"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "a handler of axum says `-> impl IntoResponse`: then the error is its response"
    )
)]
#[cfg_attr(
    feature = "actix",
    diagnostic::on_unimplemented(
        note = "a handler of actix-web says `-> impl Responder`: then the error is its response"
    )
)]
#[cfg_attr(
    not(any(feature = "axum", feature = "actix")),
    diagnostic::on_unimplemented(
        note = "axum's `Response` and actix-web's `HttpResponse` will do with the feature `axum` or `actix` of distlock"
    )
)]
pub trait FromLockError {
    /// What the function returns instead of its body's value.
    fn from_lock_error(error: LockError) -> Self;
}

impl<T, E: LockFailure> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from_failure(error))
    }
}

/// The error of a locked function's `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a `distlock::LockError`",
    label = "the error of a locked function must be `From<distlock::LockError>`",
    note = "make it with `map_err = |error| …`; or, for a type of your own, write `impl From<distlock::LockError> for {Self}`, or with thiserror a variant `Lock(#[from] distlock::LockError)`"
)]
#[cfg_attr(
    feature = "axum",
    diagnostic::on_unimplemented(
        note = "of axum's types `StatusCode`, `(StatusCode, String)` and `axum::response::ErrorResponse` will do"
    )
)]
#[cfg_attr(
    feature = "actix",
    diagnostic::on_unimplemented(note = "of actix-web's types `actix_web::Error` will do")
)]
#[cfg_attr(
    not(any(feature = "axum", feature = "actix")),
    diagnostic::on_unimplemented(
        note = "axum's `StatusCode` and actix-web's `Error` will do with the feature `axum` or `actix` of distlock"
    )
)]
pub trait LockFailure {
    /// The error, as the function returns it.
    fn from_failure(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> LockFailure for E {
    fn from_failure(error: LockError) -> Self {
        error.into()
    }
}

/// What `map_err` is for: a `Result`.
#[diagnostic::on_unimplemented(
    message = "`map_err` makes the error of a `Result`, and `{Self}` is none",
    label = "not a `Result`",
    note = "for other types say what to return with `on_fail = |error| …`"
)]
pub trait IsResult {
    /// Its error.
    type Error;

    /// The result of `map_err = function`. Without this call a closure would not know what it is
    /// given.
    fn map_err<F: FnOnce(LockError) -> Self::Error>(function: F, error: LockError) -> Self;
}

impl<T, E> IsResult for Result<T, E> {
    type Error = E;

    fn map_err<F: FnOnce(LockError) -> E>(function: F, error: LockError) -> Self {
        Err(function(error))
    }
}

/// What `on_fail = skip` returns where the lock is held elsewhere.
#[diagnostic::on_unimplemented(
    message = "`on_fail = skip` has nothing to return: `{Self}` is not `()`, `Option<T>`, `Result<(), E>` or `Result<Option<T>, E>`",
    label = "there is no value for \"skipped\"",
    note = "return an `Option`, or say what to return with `on_fail = |error| …`"
)]
pub trait Skip {
    /// As if there had been nothing to do.
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

/// `on_fail = skip` of a function that returns `R`.
///
/// Errors other than "held elsewhere" are not to be swallowed: where `R` can be made from one,
/// method resolution finds [`OrReturn`] first, else [`OrLog`].
pub struct Skipping<R> {
    skip: fn() -> R,
}

/// The start of `on_fail = skip`.
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

/// An error that goes through the return type.
pub trait OrReturn<R> {
    /// What the function returns.
    fn return_or_log(&self, error: LockError) -> R;
}

impl<R: FromLockError> OrReturn<R> for Skipping<R> {
    fn return_or_log(&self, error: LockError) -> R {
        R::from_lock_error(error)
    }
}

/// An error that the return type has no place for.
pub trait OrLog<R> {
    /// What the function returns.
    fn return_or_log(&self, error: LockError) -> R;
}

impl<R> OrLog<R> for &Skipping<R> {
    fn return_or_log(&self, error: LockError) -> R {
        // A program without a log would not hear of a job that never runs.
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
