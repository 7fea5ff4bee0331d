use distlock::{LockError, redis_lock};

#[async_trait::async_trait]
trait Store {
    #[redis_lock(key = "{id}")]
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        //~ ERROR ""x"" mismatched types
        Ok("x")
    }
}

struct Memory;

impl Store for Memory {}

fn main() {
    drop(Memory.save(1));
}
