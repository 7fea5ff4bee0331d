use distlock::{LockError, redis_lock};

//~ ERROR "fn" put `#[redis_lock]` above them
#[tokio::main(flavor = "current_thread")]
#[redis_lock(key = "a")]
async fn run() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop(run());
}
