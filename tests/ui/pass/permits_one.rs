use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}", permits = 1_u32)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
