use distlock::{LockError, redis_lock};

//~ ERROR "1 + 1" mismatched types
#[redis_lock(key = "{id}", ttl = 1 + 1)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
