use distlock::{LockError, redis_lock};

//~ ERROR "max_concurrent" it is called `permits` here
//~ ERROR "max_concurrent" cannot be combined
#[redis_lock(key = "{id}", max_concurrent = 5, mode = write)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
