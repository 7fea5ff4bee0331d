use distlock::{LockError, redis_lock};

//~ ERROR "impl Sized" a `LockError` cannot be made into an unknown type
#[redis_lock(key = "a")]
async fn locked() -> impl Sized {
    None::<LockError>
}

fn main() {
    drop(locked());
}
