use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}", on_fail = |error| match error {
    LockError::Busy { .. } => Ok(0),
    other => Err(other.to_string()),
})]
async fn locked(id: u64) -> Result<u64, String> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
