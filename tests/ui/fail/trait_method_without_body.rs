use distlock::{LockError, redis_lock};

trait Store {
    #[redis_lock(key = "{id}")]
    //~ ERROR "save" put `#[redis_lock]` on the function that has one
    fn save(&self, id: u64) -> impl Future<Output = Result<u64, LockError>>;
}

struct Memory;

impl Store for Memory {
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {
    drop(Memory.save(1));
}
