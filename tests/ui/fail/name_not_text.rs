use distlock::{LockError, redis_lock};

//~ ERROR "pay" a name is a text in quotes
#[redis_lock(key = "{id}", name = pay)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
