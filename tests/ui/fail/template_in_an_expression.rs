use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" write the text alone, `"a:{id}"`
#[redis_lock(key = "a:{id}".to_string())]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
