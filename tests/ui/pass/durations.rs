use distlock::{LockError, redis_lock};

#[redis_lock(key = "a", ttl = "10ms", wait = "1m 30s")]
async fn literals() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "b", ttl = "1.5s", wait = "2 hours",)]
async fn fractions() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((literals(), fractions()));
}
