use distlock::{LockError, redis_lock};

//~ ERROR ""id > 5"" write `id > 5`, without quotes
#[redis_lock(key = "{id}", when = "id > 5")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
