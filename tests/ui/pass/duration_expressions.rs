use std::time::Duration;

use distlock::{LockError, redis_lock};

const TTL: Duration = Duration::from_secs(5);

struct Service {
    ttl: Duration,
}

impl Service {
    #[redis_lock(key = "a:{id}", ttl = self.ttl, wait = Duration::from_millis(id * 2))]
    async fn field(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "b", ttl = TTL, wait = wait)]
async fn argument(wait: Duration) -> Result<Duration, LockError> {
    Ok(wait)
}

#[redis_lock(key = "c", ttl = if long { TTL * 2 } else { TTL })]
async fn branch(long: bool) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((Service { ttl: TTL }.field(1), argument(TTL), branch(true)));
}
