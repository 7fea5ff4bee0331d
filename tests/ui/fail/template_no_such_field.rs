use distlock::{LockError, redis_lock};

//~ ERROR ""a:{order.idd}"" no field `idd` on type `Order`
struct Order {
    id: u64,
}

#[redis_lock(key = "a:{order.idd}")]
async fn locked(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
