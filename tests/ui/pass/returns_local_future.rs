use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, redis_lock};

type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

#[redis_lock(key = "{id}")]
fn locked(id: std::rc::Rc<str>) -> LocalBoxFuture<'static, Result<usize, LockError>> {
    Box::pin(async move { Ok(id.len()) })
}

fn main() {
    drop(locked("a".into()));
}
