use distlock::{LockError, redis_lock};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

#[redis_lock(key = "{id}", max_hold = LIMIT)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
