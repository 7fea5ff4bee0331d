use distlock::{LockError, redis_lock};

const LIMIT: u8 = 5;

#[redis_lock(key("order:{id}:{}:{LIMIT}", id % 7))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
