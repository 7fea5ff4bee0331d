use async_trait::async_trait;
use distlock::{LockError, redis_lock};

#[async_trait]
trait Store<T> {
    async fn save<U: std::fmt::Display + Send + Sync>(&self, key: U, value: T) -> Result<T, LockError>
    where
        T: 'async_trait;
}

struct Memory<T>(T);

#[async_trait]
impl<T: Send + Sync + std::fmt::Display> Store<T> for Memory<T> {
    #[redis_lock(key = "{self.0}:{key}")]
    async fn save<U: std::fmt::Display + Send + Sync>(&self, key: U, value: T) -> Result<T, LockError>
    where
        T: 'async_trait,
    {
        drop(key);
        Ok(value)
    }
}

fn main() {
    drop(Memory(1).save("a", 2));
}
