use distlock::{LockError, redis_lock};

//~ ERROR "idd" cannot find value `idd` in this scope
#[redis_lock(key = "{id}", when = idd > 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
