use distlock::{LockError, redis_lock};

//~ ERROR "id + 1" this value has no place in the text
#[redis_lock(key("{}", id, id + 1))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
