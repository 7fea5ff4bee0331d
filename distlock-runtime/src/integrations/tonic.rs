//! A failed lock as the status of a gRPC call.

use std::sync::Arc;
use std::time::Duration;

use ::tonic::metadata::MetadataValue;
use ::tonic::{Code, Status};

use crate::error::LockError;

/// The metadata that tells clients of gRPC when to try again, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// With this conversion, `#[redis_lock]` works on the methods of a service as they are:
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// # macro_rules! key { ($($t:tt)*) => { distlock::LockKey::from(format!($($t)*)) } }
/// use distlock::{LockError, LockManager};
/// use tonic::{Code, Response, Status};
///
/// async fn pay(locks: &LockManager, order: u64) -> Result<Response<u64>, Status> {
///     let guard = locks.lock(key!("order:{order}")).acquire().await?;
///     guard.release().await?;
///     Ok(Response::new(order))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let locks = LockManager::in_memory();
/// let _elsewhere = locks.lock("order:7").acquire().await.unwrap();
/// let refused = pay(&locks, 7).await.unwrap_err();
/// assert_eq!(refused.code(), Code::Aborted);
/// assert!(refused.metadata().contains_key("grpc-retry-pushback-ms"));
/// # }
/// ```
///
/// | error | code | the client |
/// |---|---|---|
/// | `Busy` | `ABORTED`, with `grpc-retry-pushback-ms` | may try again, after that time |
/// | `Lost` | `ABORTED` | may try again, if what was done may be done twice |
/// | `Backend`, `Closed` | `UNAVAILABLE`, with `grpc-retry-pushback-ms` | may try again, after that time |
/// | `InvalidKey` | `INVALID_ARGUMENT` | has sent values that make no valid key |
/// | the others | `INTERNAL` | can do nothing |
///
/// The time is the manager's [`retry_after`](crate::LockManagerBuilder::retry_after), with jitter. The message is the
/// `detail` of an HTTP answer. It names neither the lock, its key and its lease, nor the store. The error itself is the
/// source of the status, for interceptors.
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Busy { .. } | LockError::Lost { .. } => Code::Aborted,
            LockError::Backend { .. } | LockError::Closed => Code::Unavailable,
            LockError::InvalidKey { .. } => Code::InvalidArgument,
            _ => Code::Internal,
        };
        let mut status = Self::new(code, error.for_clients());
        if let Some(seconds) = error.http_retry_after() {
            let millis = Duration::from_secs(seconds).as_millis();
            let value = MetadataValue::try_from(millis.to_string());
            // Digits are always a valid value.
            value.into_iter().for_each(|value| drop(status.metadata_mut().insert(PUSHBACK, value)));
        }
        status.set_source(Arc::new(error));
        status
    }
}
