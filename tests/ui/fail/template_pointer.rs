use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id:p}"" which is different in every process
#[redis_lock(key = "a:{id:p}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
