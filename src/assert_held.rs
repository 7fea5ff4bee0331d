//! The lock that code relies on, asserted where it does.

/// Panics unless the code that calls this runs under the lock of this key: in the body of a locked
/// function or of [`LockRequest::run`](crate::LockRequest::run), however deep, in the same task.
///
/// Takes what [`key!`](crate::key) takes. Only with `debug_assertions`, or with the feature
/// `test-util`; otherwise nothing is evaluated.
///
/// Guards taken by hand are not seen, and neither are tasks that the body has spawned.
///
/// ```
/// use distlock::{LockError, LockManager, assert_held, redis_lock, with_manager};
///
/// /// To be called under the order's lock.
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
