use distlock::{LockError, redis_lock};

//~ ERROR ""a:{0}"" arguments are not numbered here
#[redis_lock(key = "a:{0}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
