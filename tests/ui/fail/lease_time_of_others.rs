use distlock::{LockError, redis_lock};

//~ ERROR "leaseTime" add `renew = false` for a fixed lease
#[redis_lock(key = "{id}", leaseTime = "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
