use distlock::{LockError, redis_lock};

//~ ERROR "key" `key` is given twice: remove one
#[redis_lock(key = "a:{id}", key = "b:{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
