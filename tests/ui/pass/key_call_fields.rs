use distlock::{LockError, redis_lock};

struct Order {
    id: u64,
    shop: (String, u8),
}

#[redis_lock(key("{}:{order.id:04}-{order.shop.0}:{x}", order.shop.1, x = order.id + 1))]
async fn locked(order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {
    drop(locked(&Order { id: 1, shop: (String::new(), 2) }));
}
