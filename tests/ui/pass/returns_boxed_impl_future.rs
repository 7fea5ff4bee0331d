use std::pin::Pin;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}")]
fn locked(id: u64) -> Pin<Box<impl Future<Output = Result<u64, LockError>> + Send>> {
    Box::pin(async move { Ok(id) })
}

fn main() {
    fn is_send<T: Send>(_: T) {}
    is_send(locked(1));
}
