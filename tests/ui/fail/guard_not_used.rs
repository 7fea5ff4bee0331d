use distlock::{LockError, redis_lock};

//~ WARN "lock" unused variable: `lock`
#[redis_lock(key = "{id}", guard = lock)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
