//! For actix-web 4, with the feature `actix`: failed locks as responses, a lock around services, a
//! lock as an argument of a handler. Nothing here asks handlers to be `Send`.
//!
//! | for | there is |
//! |---|---|
//! | one handler | `#[redis_lock]` on it; it may return `Result<T, E>` with `E: From<LockError>` (also `actix_web::Error`), an `HttpResponse` or `impl Responder` |
//! | services | [`LockMiddleware`] for `wrap` |
//! | an argument | [`Locked<K>`](Locked): the lock from there to the end of the handler, or longer |
//!
//! # Errors
//!
//! [`LockError`](crate::LockError) is a `ResponseError`: `application/problem+json` with the status
//! of [`http_status`](crate::LockError::http_status). A lock held elsewhere is 423 (or the manager's
//! `busy_status`) with `Retry-After` in whole seconds. The response tells nothing of the key; what
//! is not the client's affair is logged at error level when the response is made.
//!
//! # When the lock ends
//!
//! The attribute and [`LockMiddleware`] hold the lock until the handler's future is done, and free
//! it before the response is sent: whoever has the response can ask again at once. **A body that
//! streams is sent after that, without the lock.** What must be locked while it streams takes
//! [`Locked`] and moves it into the stream; the lock then ends with the body, or when the client is
//! gone.
//!
//! When a client disconnects, actix-web by default lets the handler run to its end, and the lock
//! ends with it. With `HttpServer::h1_allow_half_closed(false)` the handler is dropped at its next
//! await, and then the lock is freed.

mod locked;
mod middleware;
mod response;

pub use super::Locked;
pub use middleware::{LockMiddleware, LockService};
