use distlock::{LockError, redis_lock};

//~ ERROR "lockAtMostFor" it is called `max_hold` here
#[redis_lock(key = "{id}", lockAtMostFor = "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
