use distlock::{LockError, redis_lock};

//~ ERROR ""background"" write `background`, without quotes
#[redis_lock(key = "{id}", release = "background")]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
