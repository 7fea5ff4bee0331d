//! The smallest locked function: ten calls add to one counter, one at a time.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use distlock::{LockError, LockManager, redis_lock};

static COUNTER: AtomicU32 = AtomicU32::new(0);

#[redis_lock(key = "counter", wait = "10s")]
async fn add_one() -> Result<u32, LockError> {
    let read = COUNTER.load(SeqCst);
    tokio::task::yield_now().await; // Without the lock, the others read the same number now.
    COUNTER.store(read + 1, SeqCst);
    Ok(read + 1)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    distlock::init(LockManager::in_memory())?;
    let calls: Vec<_> = (0..10).map(|_| tokio::spawn(add_one())).collect();
    for call in calls {
        println!("{}", call.await.expect("no panic")?);
    }
    Ok(())
}
