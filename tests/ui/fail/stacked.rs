use distlock::{LockError, redis_lock};

//~ ERROR "#[redis_lock(key = "b:{b}")]" one attribute with `keys = 
#[redis_lock(key = "a:{a}")]
#[redis_lock(key = "b:{b}")]
async fn transfer(a: u64, b: u64) -> Result<u64, LockError> {
    Ok(a + b)
}

fn main() {
    drop(transfer(1, 2));
}
