use distlock::{LockError, redis_lock};

fn is_large(id: &u64) -> bool {
    *id > 5
}

#[redis_lock(key = "{id}", when = is_large(&id))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
