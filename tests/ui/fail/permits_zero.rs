use distlock::{LockError, redis_lock};

//~ ERROR "0" write at least `permits = 1`
#[redis_lock(key = "{id}", permits = 0)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
