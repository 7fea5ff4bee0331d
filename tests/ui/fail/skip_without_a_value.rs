use distlock::redis_lock;

#[redis_lock(key = "{id}", on_fail = skip)]
//~ ERROR "u64" `on_fail = skip` has nothing to return: `u64`
async fn locked(id: u64) -> u64 {
    id
}

#[redis_lock(key = "{id}", on_fail = skip)]
//~ ERROR "Result<u64, distlock::LockError>" say what to return with `on_fail = |error| …`
async fn result(id: u64) -> Result<u64, distlock::LockError> {
    Ok(id)
}

fn main() {
    drop((locked(1), result(1)));
}
