use distlock::redis_lock;

#[redis_lock(key = "{id}")]
//~ ERROR "u64" `u64` cannot be made from a `distlock::LockError`
fn locked(id: u64) -> impl Future<Output = u64> {
    async move { id }
}

fn main() {
    drop(locked(1));
}
