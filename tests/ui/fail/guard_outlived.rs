use distlock::{LockError, LockGuard, redis_lock};

//~ ERROR "lock" cannot move out of
#[redis_lock(key = "a", guard = lock)]
async fn locked() -> Result<&'static LockGuard, LockError> {
    Ok(lock)
}

fn main() {
    drop(locked());
}
