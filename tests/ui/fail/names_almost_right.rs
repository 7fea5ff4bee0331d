use distlock::{LockError, redis_lock};

//~ ERROR "maxHold" did you mean `max_hold`?
//~ ERROR "onFail" did you mean `on_fail`?
//~ ERROR "gaurd" did you mean `guard`?
//~ ERROR "wen" did you mean `when`?
//~ ERROR "crat" did you mean `crate`?
#[redis_lock(key = "{id}", maxHold = "5s", onFail = skip, gaurd = l, wen = true, crat = ::d)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
