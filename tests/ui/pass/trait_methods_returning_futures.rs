use std::future::Future;

use distlock::{LockError, redis_lock};

trait Store {
    fn save(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send;

    #[redis_lock(key = "default:{id}")]
    fn default(&self, id: u64) -> impl Future<Output = Result<u64, LockError>> + Send {
        async move { Ok(id) }
    }
}

struct Memory;

impl Store for Memory {
    #[redis_lock(key = "save:{id}", guard = lock)]
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        Ok(id + lock.fencing_token())
    }
}

fn main() {
    drop((Memory.save(1), Memory.default(1)));
}
