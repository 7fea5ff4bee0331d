use distlock::redis_lock;

fn fallback(id: u64) -> u64 {
    id
}

//~ ERROR "fallback(id)" expected a `FnOnce(LockError)` closure, found `u64`
#[redis_lock(key = "{id}", on_fail = fallback(id))]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
