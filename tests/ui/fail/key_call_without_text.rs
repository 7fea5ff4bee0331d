use distlock::{LockError, redis_lock};

//~ ERROR "id" a text in quotes comes first
#[redis_lock(key(id))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
