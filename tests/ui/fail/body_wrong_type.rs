use distlock::{LockError, redis_lock};

//~ ERROR ""x"" mismatched types
#[redis_lock(key = "a")]
async fn locked() -> Result<u64, LockError> {
    Ok("x")
}

fn main() {}
