use distlock::{LockError, redis_lock};

//~ ERROR ""9000d"" `ttl` is at most 365 days
#[redis_lock(key = "{id}", ttl = "9000d")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
