use distlock::{LockError, redis_lock};

//~ ERROR "limit" it is called `permits` here
#[redis_lock(key = "{id}", limit = 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
