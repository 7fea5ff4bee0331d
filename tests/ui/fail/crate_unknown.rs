use distlock::{LockError, redis_lock};

//~ ERROR "locks" `locks`
#[redis_lock(key = "{id}", crate = locks)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

//~ ERROR ""::distlock"" write the path without quotes: `crate = ::distlock`
#[redis_lock(key = "{id}", crate = "::distlock")]
async fn quoted(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop((locked(1), quoted(1)));
}
