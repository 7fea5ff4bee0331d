use distlock::{LockError, redis_lock};

//~ ERROR "key" write `key = "order:{order_id}"`
#[redis_lock(key)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
