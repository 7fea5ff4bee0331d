use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}", guard = lock)]
async fn locked(id: u64, text: String) -> Result<u64, LockError> {
    let held: &distlock::LockGuard = lock;
    drop(text);
    lock.extend(std::time::Duration::from_secs(id)).await?;
    Ok(held.fencing_token())
}

#[redis_lock(key = "{id}", guard = _unused)]
async fn unused(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "{id}", guard = r#type)]
async fn raw(id: u64) -> Result<bool, LockError> {
    Ok(r#type.is_held() && id > 0)
}

fn is_send<T: Send>(value: T) -> T {
    value
}

fn main() {
    drop((is_send(locked(1, String::new())), unused(1), raw(1)));
}
