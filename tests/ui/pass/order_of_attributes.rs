use distlock::{LockError, redis_lock};

#[redis_lock(key = "main")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    drop(documented(1));
    Ok(())
}

/// Above.
#[must_use = "it says whether the order was paid"]
#[redis_lock(key = "{id}")]
/// Below.
#[inline]
async fn documented(id: u64) -> Result<u64, LockError> {
    Ok(id)
}
