use distlock::redis_lock;

#[async_trait::async_trait]
trait Store {
    async fn save(&self, id: u64) -> Result<u64, std::fmt::Error>;
}

struct Memory;

#[async_trait::async_trait]
impl Store for Memory {
    #[redis_lock(key = "{id}")]
    //~ ERROR "Result<u64, std::fmt::Error>" `std::fmt::Error` cannot be made from a `distlock::LockError`
    async fn save(&self, id: u64) -> Result<u64, std::fmt::Error> {
        Ok(id)
    }
}

fn main() {
    drop(Memory.save(1));
}
