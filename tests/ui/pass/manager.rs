use std::sync::Arc;

use distlock::{LockError, LockManager, redis_lock};

struct Service {
    locks: LockManager,
    shared: Arc<LockManager>,
}

impl Service {
    fn manager(&self) -> &LockManager {
        &self.locks
    }

    async fn found(&self) -> Result<LockManager, LockError> {
        Ok(self.locks.clone())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn field(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = &self.shared)]
    async fn in_arc(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.manager())]
    async fn method(&mut self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.found().await?)]
    async fn awaited(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", manager = self.locks)]
    async fn moved(self) -> Result<Self, LockError> {
        Ok(self)
    }
}

#[redis_lock(key = "a", manager = locks)]
async fn argument(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn owned(locks: LockManager) -> Result<LockManager, LockError> {
    Ok(locks)
}

fn main() {
    let _ = |service: Service| async move {
        let mut service = service;
        service.field().await?;
        service.in_arc().await?;
        service.method().await?;
        service.awaited().await?;
        argument(&service.locks).await?;
        owned(service.locks.clone()).await?;
        service.moved().await.map(drop)
    };
}
