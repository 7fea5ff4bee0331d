use distlock::{LockError, redis_lock};

//~ ERROR "impl" not on an `impl` block: put it on each function
struct Service;

#[redis_lock(key = "a")]
impl Service {
    async fn run(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    drop(Service.run());
}
