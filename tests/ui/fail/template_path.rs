use distlock::{LockError, redis_lock};

//~ ERROR ""a:{u64::MAX}"" write `key("…{}…", u64::MAX)`
#[redis_lock(key = "a:{u64::MAX}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
