use distlock::{LockError, redis_lock};

//~ ERROR "permits" `permits` and `mode` cannot be combined
#[redis_lock(key = "{id}", mode = read, permits = 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
