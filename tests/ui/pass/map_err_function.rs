use distlock::{LockError, redis_lock};

#[derive(Debug)]
enum PayError {
    Lock(LockError),
}

#[redis_lock(key = "{id}", map_err = PayError::Lock)]
async fn locked(id: u64) -> Result<u64, PayError> {
    Ok(id)
}

#[redis_lock(key = "{id}", map_err = std::io::Error::other)]
async fn other(id: u64) -> std::io::Result<u64> {
    Ok(id)
}

fn main() {
    drop((locked(1), other(1)));
    let PayError::Lock(error) = PayError::Lock(LockError::NotConfigured);
    drop(error);
}
