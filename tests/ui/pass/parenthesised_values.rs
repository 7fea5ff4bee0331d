use std::time::Duration;

use distlock::{LockError, LockManager, redis_lock};

#[redis_lock(
    key = ("order:{id}"),
    ttl = ("5s"),
    wait = (none),
    min_hold = (Duration::from_millis(id)),
    renew = (true),
    when = (id > 5),
    manager = (LockManager::in_memory()),
    prefix = ("shop"),
    on_fail = (skip),
)]
async fn locked(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(keys = (ids), name = ("several"), map_err = (|error| error.to_string()))]
async fn several(ids: &[String]) -> Result<(), String> {
    Ok(())
}

fn main() {
    drop((locked(1), several(&[])));
}
