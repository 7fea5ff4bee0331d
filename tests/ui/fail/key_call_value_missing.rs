use distlock::{LockError, redis_lock};

//~ ERROR ""{}:{}"" there is no value number 2: only 1 value follows the text
#[redis_lock(key("{}:{}", id))]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
