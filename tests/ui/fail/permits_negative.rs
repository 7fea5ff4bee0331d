use distlock::{LockError, redis_lock};

//~ ERROR "-1" write how many may hold the lock at once
#[redis_lock(key = "{id}", permits = -1)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
