use distlock::{LockError, redis_lock};

//~ ERROR "shared" write `read` (any number of readers at once
#[redis_lock(key = "{id}", mode = shared)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
