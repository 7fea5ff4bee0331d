use distlock::{LockError, redis_lock};

//~ ERROR ""2 years"" has no fixed length: write days
#[redis_lock(key = "{id}", wait = "2 years")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
