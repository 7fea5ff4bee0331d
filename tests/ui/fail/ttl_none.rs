use distlock::{LockError, redis_lock};

//~ ERROR "none" a lock always has a `ttl`
#[redis_lock(key = "{id}", ttl = none)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
