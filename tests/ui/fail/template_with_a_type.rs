use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id:u64}"" only templates of layers say one: write `{id}`
#[redis_lock(key = "a:{id:u64}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
