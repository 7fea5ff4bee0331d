use distlock::{LockError, redis_lock};

//~ ERROR "idd" cannot find value `idd`
#[redis_lock(key = "a:{idd}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
