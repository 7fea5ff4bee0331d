use distlock::{LockError, redis_lock};

//~ ERROR "{id}" `Option<u64>` cannot be part of a lock key
#[allow(dead_code)]
#[redis_lock(key = "a:{id}:b")]
async fn locked(id: Option<u64>) -> Result<Option<u64>, LockError> {
    Ok(id)
}

fn main() {}
