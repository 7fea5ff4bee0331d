use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" write `key = "a:{id}"`, or `keys = ["a:{id}", …]`
#[redis_lock(keys = "a:{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
