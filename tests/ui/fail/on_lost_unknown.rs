use distlock::{LockError, redis_lock};

//~ ERROR "abort" write `cancel`
#[redis_lock(key = "{id}", on_lost = abort)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
