use distlock::{LockError, redis_lock};

//~ ERROR "later" write `wait`
#[redis_lock(key = "{id}", release = later)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
