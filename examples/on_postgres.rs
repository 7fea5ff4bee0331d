//! A locked function on Postgres. Two lines are different from Redis: the feature in `Cargo.toml`
//! (`distlock = { version = "0.1", features = ["postgres"] }`), and the URL.
//!
//! ```sh
//! cargo run --example on_postgres -- postgres://user:password@localhost/shop
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use distlock::{LockError, LockManager, redis_lock};

#[redis_lock(key = "order:{order_id}", ttl = "5s", wait = "2s")]
async fn pay(order_id: u64) -> Result<String, LockError> {
    Ok(format!("order {order_id} is paid"))
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "postgres://localhost/shop".to_owned());
    distlock::init(LockManager::connect(&url).await?)?;
    let (one, other) = tokio::join!(pay(7), pay(7)); // one after the other
    println!("{}, and then once more: {}", one?, other?);
    Ok(())
}
