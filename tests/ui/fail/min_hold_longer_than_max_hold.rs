use distlock::{LockError, redis_lock};

//~ ERROR ""2m"" `min_hold` is longer than `max_hold`
#[redis_lock(key = "{id}", max_hold = "1m", min_hold = "2m")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
