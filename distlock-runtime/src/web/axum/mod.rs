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
//! [`http_status`](crate::LockError::http_status). A lock held elsewhere is 423 (or the manager's
//! `busy_status`) with `Retry-After` in whole seconds. The response tells nothing of the key; what
//! is not the client's affair is logged at error level when the response is made.
//!
//! # When the lock ends
//!
//! The attribute and [`LockLayer`] hold the lock until the handler's future is done, and free it
//! before the response is sent: whoever has the response can ask again at once. **A body that
//! streams is sent after that, without the lock.** What must be locked while it streams takes
//! [`Locked`] and moves it into the stream; the lock then ends with the body, or when the client is
//! gone.
//!
//! When a client disconnects, hyper drops the handler's future at its next await, and with it the
//! lock. Work that must be finished all the same belongs into a spawned task that takes the lock
//! itself.

mod layer;
mod locked;
mod response;

pub use super::Locked;
pub use layer::{LockLayer, LockService, ResponseFuture};
pub use locked::LockedRejection;
