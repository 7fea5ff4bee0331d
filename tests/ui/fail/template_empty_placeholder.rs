use distlock::{LockError, redis_lock};

//~ ERROR ""a:{}"" `{}` names nothing: write the argument's name
#[redis_lock(key = "a:{}")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
