use distlock::{LockError, redis_lock};

#[redis_lock(key = "a", ttl = "5s", renew = false)]
async fn fixed() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", renew = true)]
async fn renewed() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((fixed(), renewed()));
}
