use distlock::{LockError, redis_lock};

//~ ERROR ""5"" write `5`, without quotes
#[redis_lock(key = "{id}", permits = "5")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
