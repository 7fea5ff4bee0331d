use distlock::{LockError, redis_lock};

//~ ERROR ""true"" without quotes
#[redis_lock(key = "a", blocking = "true")]
fn locked() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(locked());
}
