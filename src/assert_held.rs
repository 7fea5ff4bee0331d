//! The macro that asserts that a lock is held.

/// Panics unless the calling code runs under the lock of this key: in the body of a locked function or of
/// [`LockRequest::run`](crate::LockRequest::run), at any depth, in the same task.
///
/// Takes the same arguments as [`key!`](crate::key). Checks only with `debug_assertions` or with the feature
/// `test-util`; otherwise it evaluates nothing.
///
/// It does not see guards that were acquired by hand, and fails in tasks that the body has spawned.
///
/// ```
/// use distlock::{LockError, LockManager, assert_held, redis_lock, with_manager};
///
/// /// Call this under the order's lock.
/// fn write_receipt(order_id: u64) {
///     assert_held!("order:{order_id}");
/// }
///
/// #[redis_lock(key = "order:{order_id}")]
/// async fn pay(order_id: u64) -> Result<(), LockError> {
///     write_receipt(order_id);
///     Ok(())
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// with_manager(LockManager::in_memory(), pay(7)).await?;
/// assert!(std::panic::catch_unwind(|| write_receipt(7)).is_err());
/// # Ok::<_, LockError>(())
/// # }).unwrap();
/// ```
#[macro_export]
macro_rules! assert_held {
    ($($key:tt)+) => {
        if $crate::__private::CHECKS_HELD || ::core::cfg!(debug_assertions) {
            $crate::__private::assert_held(&$crate::key!($($key)+));
        }
    };
}
