use distlock::{LockError, redis_lock};

//~ ERROR ""5ms"" `ttl` is at least 10ms
#[redis_lock(key = "{id}", ttl = "5ms")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
