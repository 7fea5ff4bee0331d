use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" write `key = "a:{id}"`
//~ ERROR ""5s"" write `ttl = "5s"`
#[redis_lock("a:{id}", "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
