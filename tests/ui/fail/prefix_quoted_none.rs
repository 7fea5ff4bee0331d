use distlock::{LockError, redis_lock};

//~ ERROR ""none"" write `none`, without quotes
#[redis_lock(key = "{id}", prefix = "none")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
