use distlock::{LockError, redis_lock};

//~ ERROR "fn" write `async fn`
#[redis_lock(key = "a")]
fn plain() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(plain());
}
