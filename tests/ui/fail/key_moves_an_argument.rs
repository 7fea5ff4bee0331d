use distlock::{LockError, redis_lock};

//~ ERROR "{ Ok(name.len()) }" use of moved value: `name`
#[redis_lock(key = name)]
async fn locked(name: String) -> Result<usize, LockError> {
    Ok(name.len())
}

fn main() {
    drop(locked(String::new()));
}
