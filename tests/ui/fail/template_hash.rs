use distlock::{LockError, redis_lock};

//~ ERROR ""a:#id"" write `{id}` for the argument
#[redis_lock(key = "a:#id")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
