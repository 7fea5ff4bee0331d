use distlock::{LockError, redis_lock};

//~ ERROR "5" a duration is a text with its unit: write `ttl = "5s"`
#[redis_lock(key = "{id}", ttl = 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
