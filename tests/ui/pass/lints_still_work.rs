use distlock::{LockError, redis_lock};

//~ WARN "never_called" never used
#[redis_lock(key = "a")]
async fn never_called() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{used}")]
//~ WARN "unused" unused variable
async fn argument(used: u8, unused: u8) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a")]
//~ WARN "mut count" variable does not need to be mutable
async fn not_mutated(mut count: u8) -> Result<u8, LockError> {
    Ok(count)
}

#[redis_lock(key = "a")]
async fn body() -> Result<(), LockError> {
    //~ WARN "local" unused variable
    let local = 1;
    return Ok(());
    //~ WARN "std::process::exit(1);" unreachable statement
    std::process::exit(1);
    Ok(())
}

#[redis_lock(key = "a")]
async fn results() -> Result<(), LockError> {
    //~ WARN "std::fs::remove_file("x")" unused `Result`
    std::fs::remove_file("x");
    Ok(())
}

fn main() {
    drop((argument(1, 2), not_mutated(1), body(), results()));
    //~ WARN "one()" unused implementer
    one();
}

#[redis_lock(key = "a")]
async fn one() -> Result<(), LockError> {
    Ok(())
}
