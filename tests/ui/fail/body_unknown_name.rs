use distlock::{LockError, redis_lock};

//~ ERROR "unknown" cannot find value `unknown`
#[redis_lock(key = "a")]
async fn locked() -> Result<u64, LockError> {
    Ok(unknown)
}

fn main() {}
