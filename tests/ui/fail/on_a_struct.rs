use distlock::{LockError, redis_lock};

//~ ERROR "struct" `#[redis_lock]` goes on an `async fn`, not on a type
#[redis_lock(key = "a")]
struct Service {
    _locks: Option<LockError>,
}

fn main() {}
