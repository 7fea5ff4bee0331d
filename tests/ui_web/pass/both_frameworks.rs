//! One extractor type for both, and everything under one roof.

use distlock::{LockError, LockLayer, LockManager, LockMiddleware, Locked};

fn same(lock: Locked<u8>) -> distlock::axum::Locked<u8> {
    let lock: distlock::actix::Locked<u8> = lock;
    lock
}

fn main() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    drop(LockLayer::new(locks.clone()).key("a").checked()?);
    drop(LockMiddleware::new(locks).key("a").checked()?);
    let _: fn(Locked<u8>) -> Locked<u8> = same;
    let _ = axum::http::StatusCode::from(LockError::Closed);
    let _ = actix_web::Error::from(LockError::Closed);
    Ok(())
}
