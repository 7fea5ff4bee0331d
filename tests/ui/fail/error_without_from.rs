use distlock::{LockError, redis_lock};

//~ ERROR "Result<(), MyErr>" `MyErr` cannot be made from a `distlock::LockError`
#[derive(Debug)]
struct MyErr;

#[redis_lock(key = "a")]
async fn locked() -> Result<(), MyErr> {
    Err(MyErr)
}

fn main() {
    drop((locked(), None::<LockError>));
}
