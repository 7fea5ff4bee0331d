use distlock::{LockError, redis_lock};

//~ ERROR "guard" without a lock there is no guard
#[redis_lock(key = "{id}", guard = lock, when = id > 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
