use distlock::{LockError, redis_lock};

//~ ERROR ""a:{self.id}"" expected value, found module `self`
#[redis_lock(key = "a:{self.id}")]
async fn locked() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
