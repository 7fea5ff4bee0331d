use distlock::{LockError, redis_lock};

//~ ERROR "id" `Option<u64>` cannot be part of a lock key
#[redis_lock(key("a:{}", id))]
async fn locked(id: Option<u64>) -> Result<(), LockError> {
    Ok(drop(id))
}

fn main() {
    drop(locked(None));
}
