use distlock::{LockError, redis_lock};

//~ ERROR ""::distlock"" write the path without quotes
#[redis_lock(key = "{id}", crate = "::distlock")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
