use distlock::{LockError, redis_lock};

//~ ERROR ""a:$id"" `$id` is plain text here: write `{id}`
#[redis_lock(key = "a:$id")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
