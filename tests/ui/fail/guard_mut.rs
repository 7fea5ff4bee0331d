use distlock::{LockError, redis_lock};

//~ ERROR "mut" write the guard's name alone, as in `guard = lock`
#[redis_lock(key = "{id}", guard = mut lock)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
