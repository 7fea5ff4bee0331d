use distlock::{LockError, redis_lock};

//~ ERROR "keys" put all of them in `keys = […]`
#[redis_lock(key = "{id}", keys = ["a:{id}"])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
