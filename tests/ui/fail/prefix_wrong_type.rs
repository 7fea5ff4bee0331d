use distlock::{LockError, redis_lock};

//~ ERROR "id" `u64` is not a prefix
#[redis_lock(key = "{id}", prefix = id)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
