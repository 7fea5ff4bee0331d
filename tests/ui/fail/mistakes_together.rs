use distlock::{LockError, redis_lock};

//~ ERROR ""5"" `5` has no unit
//~ ERROR "wiat" did you mean `wait`?
//~ ERROR ""{idd}"" `locked` has no argument `idd`: did you mean `{id}`?
#[redis_lock(key = "{idd}", ttl = "5", wiat = "2s")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
