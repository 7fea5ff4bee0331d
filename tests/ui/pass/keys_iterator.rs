use distlock::{LockError, redis_lock};

#[redis_lock(keys = (0..id).map(|n| format!("a:{n}")))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
