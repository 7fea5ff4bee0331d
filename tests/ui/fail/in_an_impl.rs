use distlock::{LockError, redis_lock};

//~ ERROR ""5"" has no unit
struct Service;

impl Service {
    #[redis_lock(key = "a", ttl = "5")]
    async fn run(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    drop(Service.run());
}
