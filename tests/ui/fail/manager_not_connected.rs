use distlock::{LockError, LockManager, redis_lock};

//~ ERROR "LockManager::from_env()" `Result<LockManager, LockError>` is not a lock manager
#[redis_lock(key = "{id}", manager = LockManager::from_env())]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
