use distlock::{LockError, redis_lock};

//~ ERROR "lock" make it an `async fn`
#[redis_lock(key = "{id}", guard = lock)]
fn locked(id: u64) -> impl Future<Output = Result<u64, LockError>> {
    async move { Ok(id) }
}

fn main() {
    drop(locked(1));
}
