use distlock::{LockError, redis_lock};

//~ ERROR "1" write `true` or `false`
#[redis_lock(key = "{id}", reentrant = 1)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
