use distlock::{LockError, redis_lock};

//~ ERROR ""a:{pair.99999999999}"" is not a name or a field
//~ ERROR ""b:{pair.self}"" is not a name or a field
#[redis_lock(keys = ["a:{pair.99999999999}", "b:{pair.self}"])]
async fn locked(pair: (u64, u64)) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(locked((1, 2)));
}
