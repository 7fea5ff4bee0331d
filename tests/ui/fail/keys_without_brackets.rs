use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" `keys` takes several
//~ ERROR ""b:{id}"" several locks are taken with `keys = ["…", "b:{id}"]`
#[redis_lock(keys = "a:{id}", "b:{id}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
