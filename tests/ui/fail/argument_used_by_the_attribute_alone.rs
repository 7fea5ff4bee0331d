#![deny(warnings)]
//! The mistake hides that the arguments are used: no lint says so.

use distlock::{LockError, redis_lock};

//~ ERROR ""a:{}"" write the argument's name
#[redis_lock(key = "a:{}", when = open)]
async fn locked(id: u64, open: bool) -> Result<(), LockError> {
    Ok(())
}

//~ ERROR "#[redis_lock]" `key` is missing
#[redis_lock]
async fn no_key(id: u64) -> Result<(), LockError> {
    Ok(())
}

//~ ERROR ""5"" `5` has no unit
#[redis_lock(key = "a", ttl = "5", guard = lock)]
async fn guarded() -> Result<u64, LockError> {
    Ok(lock.fencing_token())
}

fn main() {
    drop((locked(1, true), no_key(1), guarded()));
}
