//! Without the attribute: a guard that is taken and freed step by step, a body that runs under a lock,
//! and several locks at once.
//!
//! ```sh
//! cargo run --example by_hand
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example by_hand
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::time::Duration;

use distlock::{LockError, LockManager, LockStatus, key};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = match LockManager::from_env() {
        Err(LockError::NotConfigured) => LockManager::in_memory(),
        from_env => from_env?,
    };
    let order_id = 7;

    // A guard holds the lock until it is released or dropped.
    let guard = locks.lock(key!("order:{order_id}")).ttl(Duration::from_secs(5)).acquire().await?;
    println!("held, with the fencing token {}", guard.fencing_token());
    println!("another one asks: {:?}", locks.lock("order:7").try_acquire().await?.map(|_| "held"));
    if let LockStatus::Held { remaining: Some(rest), .. } = locks.inspect("order:7").await? {
        println!("its lease runs for {} more seconds, and is renewed", rest.as_secs_f32().ceil());
    }
    guard.release().await?;

    // A body that runs under the lock is stopped if the lock is lost: what the attribute does.
    let receipt = locks.lock(key!("order:{order_id}")).run(async { "paid" }).await?;
    println!("the body came to {receipt:?}");

    // Several locks: all or none, in one order for every caller.
    let accounts = locks.lock_all(["account:2", "account:1"]).wait(Duration::from_secs(2));
    let guard = accounts.acquire().await?;
    println!("held together: {}", guard.keys().collect::<Vec<_>>().join(", "));
    drop(guard); // Frees them in the background.

    // Before a program ends: frees what is held, and says what it could not free.
    let report = locks.close(Duration::from_secs(5)).await;
    println!("closed, everything freed: {}", report.is_complete());
    Ok(())
}
