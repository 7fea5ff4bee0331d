use distlock::{LockError, redis_lock};

//~ ERROR ""continue"" write `continue`, without quotes
#[redis_lock(key = "{id}", on_lost = "continue")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
