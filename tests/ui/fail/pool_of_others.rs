use distlock::{LockError, redis_lock};

//~ ERROR "pool" it is called `manager` here
#[redis_lock(key = "{id}", pool = p)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
