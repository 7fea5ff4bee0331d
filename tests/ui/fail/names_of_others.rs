use distlock::{LockError, redis_lock};

//~ ERROR "lockKey" called `key` here
//~ ERROR "retries" called `wait` here
//~ ERROR "watchdog" called `renew` here
//~ ERROR "condition" called `when` here
//~ ERROR "fallback" called `on_fail` here
//~ ERROR "namespace" called `prefix` here
#[redis_lock(lockKey = "a", retries = 3, watchdog = true, condition = id > 5, fallback = skip, namespace = "n")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
