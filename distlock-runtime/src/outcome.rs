//! How a failed lock becomes the return value of the function it guards.
//!
//! Traits decide, not the spelling of the return type, so that aliases of `Result` work.

use crate::error::LockError;

/// The return type of a locked function: it can say that the lock was not taken, or was lost.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a `distlock::LockError`",
    label = "a locked function must be able to return a `LockError`",
    note = "return a `Result` whose error is `From<distlock::LockError>`"
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
    note = "write `impl From<distlock::LockError> for {Self}`, or with thiserror a variant `Lock(#[from] distlock::LockError)`"
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
}
