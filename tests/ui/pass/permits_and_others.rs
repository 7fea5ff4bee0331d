use distlock::{LockError, LockManager, redis_lock};

struct Partner {
    locks: LockManager,
    at_once: u32,
}

impl Partner {
    #[redis_lock(
        key = "partner:{id}",
        permits = self.at_once,
        ttl = "5s",
        wait = "1s",
        max_hold = "1m",
        min_hold = "1s",
        on_lost = continue,
        release = background,
        reentrant = true,
        manager = self.locks,
        guard = permit,
    )]
    async fn call(&self, id: u64) -> Result<u64, LockError> {
        Ok(id + permit.fencing_token())
    }
}

fn main() {
    let partner = Partner { locks: LockManager::in_memory(), at_once: 3 };
    drop(partner.call(1));
}
