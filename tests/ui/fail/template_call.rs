use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id.get()}"" is not a name or a field
#[redis_lock(key = "a:{id.get()}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
