use distlock::{LockError, redis_lock};

#[redis_lock(key = "job", wait = none)]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "job", wait = "0s")]
async fn zero() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((none(), zero()));
}
