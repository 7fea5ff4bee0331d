use distlock::{LockError, redis_lock};

//~ ERROR "reentrant" write `reentrant = true`
#[redis_lock(key = "{id}", reentrant)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
