use distlock::{LockError, redis_lock};

//~ ERROR ""false"" write `false`, without quotes
#[redis_lock(key = "{id}", renew = "false")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
