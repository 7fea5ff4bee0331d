//~ ALONE a lint comes only where nothing else is wrong
use distlock::{LockError, redis_lock};

//~ ERROR "5_000_000_000" literal out of range
#[redis_lock(key = "{id}", permits = 5_000_000_000)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
