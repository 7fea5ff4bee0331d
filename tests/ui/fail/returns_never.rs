use distlock::{LockError, redis_lock};

//~ ERROR "!" a function that never returns cannot say
#[redis_lock(key = "a")]
async fn locked() -> ! {
    std::process::exit(None::<LockError>.is_some() as i32)
}

fn main() {
    drop(locked());
}
