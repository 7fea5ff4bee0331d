use distlock::{LockError, redis_lock};

//~ ERROR "Ok(0)" write `on_fail = |_| Ok(0)`
#[redis_lock(key = "{id}", on_fail = Ok(0))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
