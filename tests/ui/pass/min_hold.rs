use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}", min_hold = "30s", max_hold = "1h")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
