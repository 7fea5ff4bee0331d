use distlock::{LockError, redis_lock};

//~ ERROR "id" mismatched types
#[redis_lock(key = "{id}", permits = id)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
