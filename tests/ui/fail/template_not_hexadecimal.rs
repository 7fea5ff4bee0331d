use distlock::{LockError, redis_lock};

//~ ERROR "{name:x}" LowerHex` is not satisfied
#[redis_lock(key = "a:{name:x}")]
async fn locked(name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

fn main() {}
