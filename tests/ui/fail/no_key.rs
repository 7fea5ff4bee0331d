use distlock::{LockError, redis_lock};

//~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "order:{order_id}"`
#[redis_lock]
async fn pay(order_id: u64) -> Result<u64, LockError> {
    Ok(order_id)
}

//~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "order:{id}"`
#[redis_lock]
async fn cancel(note: &str, id: u64) -> Result<u64, LockError> {
    Ok(id + note.len() as u64)
}

//~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "year:{year}"`
#[redis_lock]
async fn close(year: u64) -> Result<u64, LockError> {
    Ok(year)
}

//~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "nightly-report"`
#[redis_lock]
async fn report() -> Result<(), LockError> {
    Ok(())
}

struct Order;

impl Order {
    //~ ERROR "#[redis_lock]" `key` is missing: say what to lock, for example `key = "order:{self.id}"`
    #[redis_lock]
    async fn ship(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    drop((pay(1), cancel("", 1), close(1), report(), Order.ship()));
}
