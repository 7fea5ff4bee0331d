use distlock::{LockError, redis_lock};

//~ ERROR "ids" `Vec<u64>` does not iterate over lock keys
#[redis_lock(keys = ids)]
async fn locked(ids: Vec<u64>) -> Result<u64, LockError> {
    Ok(1)
}

fn main() {
    drop(locked(vec![1]));
}
