//! How a leader's body ends.

use std::convert::Infallible;
use std::fmt::Display;

/// What the body of [`LeaderRequest::run`](crate::LeaderRequest::run) may return: nothing, a `Result<(), E>`
/// whose error can be printed, or, of a loop without end, `!`.
#[diagnostic::on_unimplemented(
    message = "a leader's body returns `()` or `Result<(), E>`, and not `{Self}`",
    note = "the error `E` must be `Display`: it is logged, and the campaign goes on after a pause"
)]
pub trait TermOutcome {
    /// Why it ended before its time; `None` if it gave the lead up.
    #[doc(hidden)]
    fn failure(self) -> Option<String>;
}

impl TermOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> TermOutcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

impl TermOutcome for Infallible {
    fn failure(self) -> Option<String> {
        match self {}
    }
}

/// What a function returns. It gives a name to the type of `loop {}`, which has none yet.
#[doc(hidden)]
pub trait Returned {
    type Type;
}

impl<T> Returned for fn() -> T {
    type Type = T;
}

impl TermOutcome for <fn() -> ! as Returned>::Type {
    fn failure(self) -> Option<String> {
        self
    }
}
