use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id + 1}"" write `key("…{}…", id + 1)`
#[redis_lock(key = "a:{id + 1}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
