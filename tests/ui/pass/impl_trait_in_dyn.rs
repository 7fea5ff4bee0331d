use std::fmt::Display;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "a")]
async fn locked() -> Result<Box<dyn Iterator<Item = impl Display>>, LockError> {
    Ok(Box::new([1, 2].into_iter()))
}

fn main() {
    drop(locked());
}
