use distlock::{LockError, redis_lock};

#[redis_lock(key = "nightly")]
async fn job() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(job());
}
