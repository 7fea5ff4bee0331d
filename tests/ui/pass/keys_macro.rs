use distlock::{LockError, redis_lock};

#[redis_lock(keys = vec![String::from("a"), id.to_string()])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
