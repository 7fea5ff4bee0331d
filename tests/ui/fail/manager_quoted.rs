use distlock::{LockError, redis_lock};

//~ ERROR ""redis://127.0.0.1"" `&str` is not a lock manager
#[redis_lock(key = "{id}", manager = "redis://127.0.0.1")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
