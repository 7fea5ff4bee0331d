use distlock::{LockError, redis_lock};

//~ ERROR "fn" or add `blocking`, which blocks the caller's thread, and accepts that the body runs on when the lock is lost
#[redis_lock(key = "a")]
fn plain() -> Result<(), LockError> {
    Ok(())
}

//~ ERROR "fn" or add `blocking`
#[redis_lock(key = "b", blocking = false)]
fn as_plain() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((plain(), as_plain()));
}
