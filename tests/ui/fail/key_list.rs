use distlock::{LockError, redis_lock};

//~ ERROR "["a:{id}", "b:{id}"]" several locks are taken with `keys = […]`
#[redis_lock(key = ["a:{id}", "b:{id}"])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
