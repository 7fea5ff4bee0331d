use distlock::{LockError, redis_lock};

//~ WARN "never_called" never used
#[redis_lock(key = "a", on_fail = skip)]
async fn never_called() {}

#[redis_lock(key = "a", guard = lock)]
//~ WARN "unused" unused variable
async fn argument(unused: u8) -> Result<u64, LockError> {
    Ok(lock.fencing_token())
}

#[redis_lock(key = "a", on_fail = |error| drop(error))]
//~ WARN "mut count" variable does not need to be mutable
async fn not_mutated(mut count: u8) {
    let _ = count;
}

#[redis_lock(key = "a")]
//~ WARN "unused" unused variable
fn returned(unused: u8) -> impl Future<Output = Result<(), LockError>> {
    async move {
        //~ WARN "local" unused variable
        let local = 1;
        Ok(())
    }
}

fn main() {
    drop((argument(1), not_mutated(1), returned(1)));
}
