use distlock::{LockError, redis_lock};

//~ ERROR "read" write `mode = read`
#[redis_lock(key = "{id}", read)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
