use distlock::{LockError, redis_lock};

//~ ERROR "{ let _ = String::new(); }" mismatched types
#[redis_lock(key = "a")]
async fn locked() -> Result<u64, LockError> {
    let _ = String::new();
}

fn main() {}
