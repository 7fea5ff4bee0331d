use std::sync::{Arc, LazyLock};

use distlock::{LockError, LockManager, redis_lock};

static LOCKS: LazyLock<LockManager> = LazyLock::new(LockManager::in_memory);

struct Shop(Arc<Box<LockManager>>);

impl Shop {
    #[redis_lock(key = "a", manager = self.0)]
    async fn in_a_box(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "a", manager = LOCKS)]
async fn lazy() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = *LOCKS)]
async fn named() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((Shop(Arc::new(Box::new(LOCKS.clone()))).in_a_box(), lazy(), named()));
}
