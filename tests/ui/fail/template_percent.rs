use distlock::{LockError, redis_lock};

//~ ERROR ""a:%s"" write `{id}` for the argument
#[redis_lock(key = "a:%s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
