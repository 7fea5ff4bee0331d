use distlock::{LockError, redis_lock};

//~ ERROR "u64" `u64` cannot be made from a `distlock::LockError`
#[redis_lock(key = "a")]
async fn locked() -> u64 {
    1
}

fn main() {
    drop((locked(), None::<LockError>));
}
