use distlock::{LockError, redis_lock};

const LIMIT: u32 = 2;

#[redis_lock(key = "{id}", permits = LIMIT + u32::from(id > 5))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
