use distlock::{LockError, redis_lock};

//~ ERROR "fn" functions that return a future are not supported yet
#[redis_lock(key = "a")]
fn locked() -> impl Future<Output = Result<(), LockError>> {
    async { Ok(()) }
}

fn main() {
    drop(locked());
}
