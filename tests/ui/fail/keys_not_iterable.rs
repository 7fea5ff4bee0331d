use distlock::{LockError, redis_lock};

//~ ERROR "id" `u64` does not iterate over lock keys
#[redis_lock(keys = id)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
