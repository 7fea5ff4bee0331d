use distlock::{LockError, redis_lock};

//~ ERROR "timeout" it is called `wait` here
#[redis_lock(key = "{id}", timeout = "2s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
