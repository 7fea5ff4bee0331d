use std::pin::Pin;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "depth:{depth}")]
async fn down(depth: u8) -> Result<u8, LockError> {
    if depth == 0 {
        return Ok(0);
    }
    let below: Pin<Box<dyn Future<Output = Result<u8, LockError>>>> = Box::pin(down(depth - 1));
    below.await
}

fn main() {
    drop(down(3));
}
