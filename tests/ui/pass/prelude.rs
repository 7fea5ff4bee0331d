use distlock::prelude::*;

#[redis_lock(key = "order:{id}", wait = "1s", guard = lock)]
async fn pay(id: u64) -> Result<u64, LockError> {
    let lock: &LockGuard = lock;
    Ok(lock.fencing_token())
}

async fn by_hand(locks: &LockManager, id: u64) -> Result<(), LockError> {
    let key: LockKey = key!("order:{id}");
    locks.lock(key).on_lost(OnLost::Continue).run(async {}).await
}

fn main() {
    drop((pay(1), by_hand(&LockManager::in_memory(), 1)));
}
