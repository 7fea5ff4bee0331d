use distlock::{LockError, redis_lock};

//~ ERROR "5" a key is a text in quotes
#[redis_lock(key = 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
