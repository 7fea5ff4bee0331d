use distlock::{LockError, redis_lock};

//~ ERROR "Answer" `MyErr` cannot be made from a `distlock::LockError`
#[derive(Debug)]
struct MyErr;
type Answer = Result<(), MyErr>;

#[redis_lock(key = "a")]
async fn locked() -> Answer {
    Err(MyErr)
}

fn main() {
    drop((locked(), None::<LockError>));
}
