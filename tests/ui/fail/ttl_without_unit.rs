use distlock::{LockError, redis_lock};

//~ ERROR ""5"" `5` has no unit: write `5s` or `5ms`
#[redis_lock(key = "{id}", ttl = "5")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
