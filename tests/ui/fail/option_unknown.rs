use distlock::{LockError, redis_lock};

//~ ERROR "bananas" there are `key`, `keys`, `ttl`, `wait`
#[redis_lock(key = "{id}", bananas = 3)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
