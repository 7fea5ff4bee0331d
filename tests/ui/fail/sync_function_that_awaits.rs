use distlock::{LockError, redis_lock};

#[redis_lock(key = "a:{id}")]
//~ ERROR "fn" write `async fn`
pub fn locked(id: u64) -> Result<(), LockError> {
    save().await
}

async fn save() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(locked(1));
}
