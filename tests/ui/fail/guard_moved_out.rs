use distlock::{LockError, LockGuard, redis_lock};

#[redis_lock(key = "{id}", guard = lock)]
async fn locked(id: u64) -> Result<u64, LockError> {
    //~ ERROR "lock" mismatched types
    keep(lock);
    Ok(id)
}

fn keep(_: LockGuard) {}

fn main() {
    drop(locked(1));
}
