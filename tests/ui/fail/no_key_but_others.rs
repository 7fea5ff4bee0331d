use distlock::{LockError, redis_lock};

//~ ERROR "#[redis_lock(ttl = "5s")]" `key` is missing
#[redis_lock(ttl = "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
