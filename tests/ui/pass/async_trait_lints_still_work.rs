use async_trait::async_trait;
use distlock::{LockError, redis_lock};

#[async_trait]
trait Store {
    async fn save(&self, id: u64) -> Result<(), LockError>;
}

struct Memory;

#[async_trait]
impl Store for Memory {
    #[redis_lock(key = "{id}")]
    async fn save(&self, id: u64) -> Result<(), LockError> {
        //~ WARN "local" unused variable
        let local = 1;
        Ok(())
    }
}

fn main() {
    drop(Memory.save(1));
}
