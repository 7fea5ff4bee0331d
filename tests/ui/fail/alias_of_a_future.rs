use std::pin::Pin;

use distlock::{LockError, redis_lock};

type Fut<T> = Pin<Box<dyn Future<Output = T>>>;

#[redis_lock(key = "{id}")]
//~ ERROR "fn" `impl Future<Output = …>`
fn locked(id: u64) -> Fut<Result<u64, LockError>> {
    Box::pin(async move { Ok(id) })
}

fn main() {
    drop(locked(1));
}
