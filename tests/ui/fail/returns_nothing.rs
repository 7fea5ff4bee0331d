use distlock::{LockError, redis_lock};

//~ ERROR "locked" `()` cannot be made from a `distlock::LockError`
#[redis_lock(key = "a")]
async fn locked() {}

fn main() {
    drop((locked(), None::<LockError>));
}
