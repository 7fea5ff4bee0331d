use distlock::{LockError, LockKey, key, redis_lock};

struct OrderKey(u64);

impl From<OrderKey> for LockKey {
    fn from(key: OrderKey) -> Self {
        key!("order:{key.0}")
    }
}

#[redis_lock(key = OrderKey(id))]
async fn own_type(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = format!("order:{id}"))]
async fn text(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = name)]
async fn argument(name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

#[redis_lock(key = if id > 5 { "large" } else { "small" })]
async fn chosen(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = &name)]
async fn borrowed(name: String) -> Result<String, LockError> {
    Ok(name)
}

fn main() {
    drop((own_type(1), text(1), argument("a"), chosen(1), borrowed(String::new())));
}
