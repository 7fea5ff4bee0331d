use distlock::{LockError, redis_lock};

//~ ERROR "none" leave the option out
#[redis_lock(key = "{id}", max_hold = none)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
