use distlock::{LockError, redis_lock};

//~ ERROR "id" `id` would hide the argument `id`
#[redis_lock(key = "{id}", guard = id)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
