#![allow(dead_code)]
//! A trait that everything implements has methods with the names of ours.

use distlock::{LockError, LockManager, key, redis_lock};

trait Everything: Sized {
    fn part(self) {}
    fn key(self) {}
    fn acquire(self) {}
    fn ttl(self) {}
    fn wait(self) {}
    fn renew(self) {}
    fn name(self) {}
    fn hold(self) {}
    fn skip(self) {}
    fn is_busy(self) {}
    fn as_mut(self) {}
    fn release(self) {}
    fn lock_manager(self) {}
}

impl<T> Everything for T {}

#[redis_lock(key = "{a}:{b.0}", ttl = "5s", wait = "1s", renew = false, name = "n", manager = m)]
async fn locked(a: u64, b: (u64,), m: LockManager) -> Result<u64, LockError> {
    drop(m);
    Ok(a + b.0)
}

#[redis_lock(keys = ["{a}", key("{}", a)], when = a > 5, on_fail = skip)]
async fn skipping(a: u64) {
    let _ = a;
}

#[redis_lock(key = "{a}", on_fail = skip)]
async fn returning(a: u64) -> Result<(), LockError> {
    let _ = a;
    Ok(())
}

#[redis_lock(key = "{a}", guard = lock, map_err = |_| ())]
async fn guarded(a: u64) -> Result<u64, ()> {
    Ok(a + lock.fencing_token())
}

fn main() {
    let id = 1;
    drop(key!("{id}"));
    drop((locked(1, (2,), LockManager::in_memory()), skipping(1), returning(1), guarded(1)));
}
