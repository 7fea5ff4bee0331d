use distlock::{LockError, redis_lock};

//~ ERROR "run" `run` has no body to run under the lock
trait Service {
    #[redis_lock(key = "a")]
    #[allow(async_fn_in_trait)]
    async fn run(&self) -> Result<(), LockError>;
}

fn main() {}
