//! For axum 0.8, with the feature `axum`: failed locks as responses, a lock around routes, a lock
//! as an argument of a handler.
//!
//! | for | there is |
//! |---|---|
//! | one handler | `#[redis_lock]` on it; it may return `Result<T, E>` with `E: From<LockError>` (also `StatusCode`), a `Response` or `impl IntoResponse` |
//! | routes | [`LockLayer`] for `Router::route_layer` |
//! | an argument | [`Locked<K>`](Locked): the lock from there to the end of the handler, or longer |
//!
//! # Errors
//!
//! [`LockError`](crate::LockError) is a response: `application/problem+json` with the status of
//! [`http_status`](crate::LockError::http_status) and, where trying again may help, `Retry-After` of
//! [`http_retry_after`](crate::LockError::http_retry_after). A lock held elsewhere is 423 (or the
//! manager's `busy_status`). The response says nothing about the key; what is not for the client is
//! logged at error level when the response is made, once a second at most for each lock.
//!
//! The member `code` of the document says which failure it is, and does not change between versions:
//!
//! | code | status | |
//! |---|---|---|
//! | `lock-busy` | 423, or `busy_status` | others hold the lock |
//! | `lock-store-unavailable` | 503 | the store cannot be reached, does not answer, or refuses |
//! | `lock-closed` | 503 | the manager was closed: the service ends |
//! | `lock-invalid-key` | 400 | what the request names cannot be locked |
//! | `lock-body-timeout` | 408 | the request's body did not come within `body_timeout` |
//! | `lock-lost` | 500 | the lease was lost while the handler ran |
//! | `lock-would-deadlock` | 500 | the handler waits for a lock that it holds |
//! | `lock-misconfigured` | 500 | the log says what is set up wrongly |
//!
//! The error itself is in the extensions of the response: `response.extensions().get::<LockError>()`.
//!
//! # When the lock ends
//!
//! The attribute and [`LockLayer`] hold the lock until the handler's future is done, and free it
//! before the response is sent: a client that has the response can ask again at once. **A body that
//! streams is sent after that, without the lock.** What must be locked while it streams takes
//! [`Locked`] and moves it into the stream; the lock then ends with the body, or when the client is
//! gone.
//!
//! When a client disconnects, hyper drops the handler's future at its next await, and with it the
//! lock. Work that must be finished all the same belongs into a spawned task that takes the lock
//! itself.

mod body;
mod layer;
mod locked;
mod response;
mod state;

pub use super::http::{
    Defaults, FencingToken, HasKey, KeyOrResponse, Keyed, Locked, LockedOptions, MaybeKey,
    RouteKey, Unkeyed,
};
pub use layer::{LockLayer, LockService, ResponseFuture};
pub use locked::LockedRejection;
pub use state::HasLockManager;
