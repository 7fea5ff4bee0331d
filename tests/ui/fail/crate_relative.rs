use distlock::{LockError, redis_lock};

//~ ERROR "renamed" write `::renamed` for a crate
#[redis_lock(key = "{id}", crate = renamed)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
