use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" write `key = "a:{id}"`
#[redis_lock("a:{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
