use distlock::{LockError, redis_lock};

//~ ERROR "permits" `permits` is not supported yet
//~ ERROR "mode" `mode` is not supported yet
#[redis_lock(key = "{id}", permits = 5, mode = read)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
