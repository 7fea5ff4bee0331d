use distlock::{LockError, redis_lock as locked};

#[locked(key = "a:{a}")]
//~ ERROR "#[locked(key = "b:{b}")]" one attribute with `keys = 
#[locked(key = "b:{b}")]
async fn transfer(a: u64, b: u64) -> Result<u64, LockError> {
    Ok(a + b)
}

fn main() {
    drop(transfer(1, 2));
}
