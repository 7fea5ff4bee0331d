use distlock::{LockError, redis_lock};

#[redis_lock(key("order:{:0width$}:{id}", id, width = 5))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
