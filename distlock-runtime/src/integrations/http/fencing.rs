//! The fencing token of a request's lock.

use std::fmt;

/// The fencing token under which a layer or a middleware runs a handler, in the request's
/// extensions: `Extension(FencingToken(token))` as an argument in axum, `ReqData<FencingToken>` in
/// actix-web. Of several locks at once it is that of the guard.
///
/// It is larger than that of every earlier holder. Send it along with each write, and let the resource
/// refuse a token smaller than one it has seen; see
/// [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use distlock::FencingToken;
///
/// let (former, current) = (FencingToken(41), FencingToken(42));
/// assert!(former < current);
/// assert_eq!(u64::from(current), 42);
/// assert_eq!(format!("fence <= {current}"), "fence <= 42");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(
    /// The number itself.
    pub u64,
);

impl From<FencingToken> for u64 {
    fn from(FencingToken(token): FencingToken) -> Self {
        token
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
