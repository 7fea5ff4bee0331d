use distlock::{LockError, redis_lock};

async fn find(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key("order:{}:{id}", find(id).await?))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(keys = ["a", key("{id}:{}:{b:w$}", id + 1, b = find(id).await?, w = 5)])]
async fn several(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    fn is_send<T: Send>(_: T) {}
    is_send(locked(1));
    is_send(several(1));
}
