use distlock::{LockError, redis_lock};

//~ ERROR "ttl" write `ttl = "5s"`
#[redis_lock(key = "{id}", ttl: "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
