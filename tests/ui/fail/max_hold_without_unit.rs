use distlock::{LockError, redis_lock};

//~ ERROR ""5"" `5` has no unit: write `5s`
#[redis_lock(key = "{id}", max_hold = "5")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
