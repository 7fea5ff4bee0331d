use std::cell::Cell;
use std::rc::Rc;

use distlock::{LockError, redis_lock};

/// `Send` but not `Sync`, like a request of axum.
struct Request(Cell<u8>);

fn is_send<T: Send>(_: T) {}

#[redis_lock(key = "{id}", ttl = "5s", wait = "1s")]
async fn with_request(id: u64, request: Request) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(request.0.get())
}

#[redis_lock(key = "{name.0}:{n:x}", ttl = "5s")]
async fn with_reference(name: &(String,), n: u8) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(1)
}

#[redis_lock(key = "{id}")]
async fn not_send(id: Rc<str>) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(id.len() as u8)
}

fn main() {
    is_send(with_request(1, Request(Cell::new(1))));
    is_send(with_reference(&(String::new(),), 1));
    drop(not_send("a".into()));
}
