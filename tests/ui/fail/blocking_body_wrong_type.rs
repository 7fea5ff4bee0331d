use distlock::{LockError, redis_lock};

#[redis_lock(key = "a", blocking)]
fn locked(id: u64) -> Result<u64, LockError> {
    if id > 7 {
        return Ok(7);
    }
    //~ ERROR ""x"" mismatched types
    Ok("x")
}

fn main() {
    drop(locked(1));
}
