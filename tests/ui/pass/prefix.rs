use distlock::{LockError, redis_lock};

struct Shop {
    tenant: String,
}

impl Shop {
    #[redis_lock(key = "a", prefix = self.tenant)]
    async fn of_self(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "a", prefix = "shop:orders")]
async fn text() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", prefix = none)]
async fn without() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", prefix = format!("shop-{id}"), when = id > 5)]
async fn made(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop((Shop { tenant: String::new() }.of_self(), text(), without(), made(1)));
}
