use distlock::{LockError, redis_lock};

//~ ERROR "{to}" `locked` has no argument `to`: there is `{from}`
#[redis_lock(keys = ["a:{from}", "a:{to}"])]
async fn locked(from: u64) -> Result<u64, LockError> {
    Ok(from)
}

fn main() {
    drop(locked(1));
}
