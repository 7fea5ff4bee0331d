use distlock::{LockError, redis_lock};

//~ ERROR "const" a `const fn` runs while compiling
#[redis_lock(key = "a")]
const async fn locked() -> Result<u64, LockError> {
    Ok(1)
}

fn main() {
    drop(locked());
}
