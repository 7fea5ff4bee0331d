use distlock::{LockError, redis_lock};

#[redis_lock(
    keys = ["a:{id}", "b"],
    ttl = "5s",
    wait = none,
    renew = true,
    max_hold = "1m",
    min_hold = "1s",
    on_lost = continue,
    release = background,
    on_fail = skip,
    map_err = |error| error,
    reentrant = true,
    mode = read,
    manager = distlock::LockManager::in_memory(),
    name = "all",
    when = id > 0,
    crate = ::distlock,
)]
async fn locked(id: u64) -> Result<Option<u64>, LockError> {
    Ok(Some(id))
}

fn main() {
    drop(locked(1));
}
