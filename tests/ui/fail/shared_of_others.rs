use distlock::{LockError, redis_lock};

//~ ERROR "shared" it is called `mode` here: write `mode = read`
#[redis_lock(key = "{id}", shared = true)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
