use distlock::{LockError, redis_lock};

//~ ERROR "=" write `key = …`, with a plain `=`
#[redis_lock(key == "{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
