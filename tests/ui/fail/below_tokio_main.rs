use distlock::{LockError, redis_lock};

//~ ERROR "fn" put `#[redis_lock]` above them
#[tokio::main(flavor = "current_thread")]
#[redis_lock(key = "a")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
