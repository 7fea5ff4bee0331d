use distlock::{LockError, redis_lock};

//~ ERROR "blocking" this one awaits its lock; remove it
#[redis_lock(key = "a", blocking)]
async fn locked() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(locked());
}
