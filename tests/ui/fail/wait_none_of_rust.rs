use distlock::{LockError, redis_lock};

//~ ERROR "None" write `wait = none`
#[redis_lock(key = "{id}", wait = None)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
