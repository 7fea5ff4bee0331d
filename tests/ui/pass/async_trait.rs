use async_trait::async_trait;
use distlock::{LockError, redis_lock};

#[async_trait]
trait Store {
    async fn save(&self, id: u64, text: &str) -> Result<u64, LockError>;
    async fn clear(&mut self, id: u64) -> Result<(), LockError>;
    async fn close(self: Box<Self>) -> Result<(), LockError>;
    async fn create(id: u64) -> Result<u64, LockError>
    where
        Self: Sized;
}

struct Memory {
    tenant: String,
}

#[async_trait]
impl Store for Memory {
    #[redis_lock(key = "{self.tenant}:{id}:{text}", ttl = "5s")]
    async fn save(&self, id: u64, text: &str) -> Result<u64, LockError> {
        Ok(id + self.tenant.len() as u64 + text.len() as u64)
    }

    #[redis_lock(key = "{self.tenant}:{id}")]
    async fn clear(&mut self, mut id: u64) -> Result<(), LockError> {
        id += 1;
        self.tenant = id.to_string();
        Ok(())
    }

    #[redis_lock(key("{}", self.tenant.len()))]
    async fn close(self: Box<Self>) -> Result<(), LockError> {
        drop(self.tenant);
        Ok(())
    }

    #[redis_lock(key = "{id}")]
    async fn create(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

fn main() {
    let mut memory = Memory { tenant: String::new() };
    drop(is_send(memory.save(1, "a")));
    drop(is_send(memory.clear(1)));
    drop((Box::new(memory).close(), Memory::create(1)));
}
