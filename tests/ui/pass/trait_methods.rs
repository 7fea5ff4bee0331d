use distlock::{LockError, redis_lock};

trait Store {
    fn name(&self) -> String;

    fn save(&self, id: u64) -> impl Future<Output = Result<u64, LockError>>;
}

struct Memory;

impl Store for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    #[redis_lock(key = "save:{id}")]
    async fn save(&self, id: u64) -> Result<u64, LockError> {
        Ok(id + self.name().len() as u64)
    }
}

#[allow(async_fn_in_trait)]
trait WithDefault {
    #[redis_lock(key = "default:{id}")]
    async fn run(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

impl WithDefault for Memory {}

fn main() {
    drop((Memory.save(1), Memory.run(1)));
}
