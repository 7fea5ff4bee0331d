use distlock::{LockError, redis_lock};

//~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "pay:{order_id}"`
#[redis_lock]
async fn pay(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

fn main() {
    drop(pay(1));
}
