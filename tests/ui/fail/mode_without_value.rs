use distlock::{LockError, redis_lock};

//~ ERROR "mode" write `mode = read`
#[redis_lock(key = "{id}", mode)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
