use distlock::{LockError, redis_lock};

//~ ERROR ""{id}{id}"" nothing separates `{id}` from `{id}`
#[redis_lock(key = "{id}{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
