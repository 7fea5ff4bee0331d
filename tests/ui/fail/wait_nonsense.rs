use distlock::{LockError, redis_lock};

//~ ERROR ""soon"" `soon` is not a duration: write for example `5s`
#[redis_lock(key = "{id}", wait = "soon")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
