use distlock::{LockError, redis_lock};

//~ ERROR ""lock"" write `lock`, without quotes
#[redis_lock(key = "{id}", guard = "lock")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
