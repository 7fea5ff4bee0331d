use distlock::{LockError, redis_lock};

//~ ERROR "fn" the function must be `async`
//~ ERROR ""5"" `5` has no unit
#[redis_lock(key = "a", ttl = "5")]
fn plain() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(plain());
}
