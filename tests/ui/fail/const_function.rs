use distlock::{LockError, redis_lock};

//~ ERROR "const" a `const fn` runs while compiling
#[redis_lock(key = "a")]
const fn constant() -> Result<u8, LockError> {
    Ok(1)
}

fn main() {
    drop(constant());
}
