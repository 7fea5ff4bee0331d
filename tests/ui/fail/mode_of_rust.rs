use distlock::{LockError, redis_lock};

//~ ERROR "distlock" write `read`
#[redis_lock(key = "{id}", mode = distlock::LockMode::Read)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
