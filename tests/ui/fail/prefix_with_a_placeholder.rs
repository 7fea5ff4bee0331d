use distlock::{LockError, redis_lock};

//~ ERROR ""shop:{id}"" arguments belong into the key
#[redis_lock(key = "{id}", prefix = "shop:{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
