use distlock::{LockError, redis_lock};

//~ ERROR ""a:{order.id}"" `Option<u64>` cannot be part of a lock key
struct Order {
    id: Option<u64>,
}

#[redis_lock(key = "a:{order.id}")]
async fn locked(order: Order) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
