use distlock::{LockError, redis_lock};

//~ ERROR ""1M"" minutes are written `m`
#[redis_lock(key = "{id}", ttl = "1M")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
