use distlock::{LockError, redis_lock};

//~ ERROR "[]" name at least one
#[redis_lock(keys = [])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
