use distlock::{LockError, redis_lock};

#[async_trait::async_trait]
trait Store {
    //~ ERROR "{idd}" `save` has no argument `idd`: did you mean `{id}`?
    #[redis_lock(key = "{idd}")]
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

struct Memory;

impl Store for Memory {}

fn main() {
    drop(Memory.save(1));
}
