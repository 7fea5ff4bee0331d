use std::future::Future;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}", ttl = "5s")]
fn locked(id: u64) -> impl Future<Output = Result<u64, LockError>> + Send {
    async move {
        std::future::ready(()).await;
        Ok(id)
    }
}

#[redis_lock(key = "{text}")]
fn borrowed(text: &str) -> impl Future<Output = Result<usize, LockError>> {
    let length = text.len();
    async move { Ok(length + text.len()) }
}

#[redis_lock(key = "{text}")]
fn owned(text: &str) -> impl Future<Output = Result<usize, LockError>> + use<> {
    let text = text.to_owned();
    async move { Ok(text.len()) }
}

fn is_send<T: Send + 'static>(value: T) -> T {
    value
}

fn main() {
    drop((is_send(locked(1)), borrowed("a"), is_send(owned("a"))));
}
