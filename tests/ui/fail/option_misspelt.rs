use distlock::{LockError, redis_lock};

//~ ERROR "wiat" unknown option `wiat`: did you mean `wait`?
#[redis_lock(key = "{id}", wiat = "5s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
