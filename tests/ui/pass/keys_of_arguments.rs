use distlock::{LockError, redis_lock};

#[redis_lock(keys = names)]
async fn locked(names: &[&str]) -> Result<usize, LockError> {
    Ok(names.len())
}

#[redis_lock(keys = &names)]
async fn owned(names: Vec<String>) -> Result<usize, LockError> {
    Ok(names.len())
}

fn main() {
    drop((locked(&["a"]), owned(Vec::new())));
}
