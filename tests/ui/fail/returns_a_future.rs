use std::future::{Future, Ready, ready};

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}")]
//~ ERROR "fn" `impl Future<Output = …>`
fn locked(id: u64) -> Box<dyn Future<Output = Result<u64, LockError>>> {
    Box::new(ready(Ok(id)))
}

#[redis_lock(key = "{id}")]
//~ ERROR "fn" write `async fn`
fn named(id: u64) -> Ready<Result<u64, LockError>> {
    ready(Ok(id))
}

fn main() {
    drop((locked(1), named(1)));
}
