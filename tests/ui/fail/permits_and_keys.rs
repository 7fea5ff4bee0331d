use distlock::{LockError, redis_lock};

//~ ERROR "permits" `permits` goes with one lock
#[redis_lock(keys = ["a:{id}", "b"], permits = 5)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
