use distlock::{LockError, redis_lock};

//~ ERROR "extern "C"" called by code that cannot await
#[redis_lock(key = "a")]
pub extern "C" fn foreign() -> u8 {
    let _: Option<LockError> = None;
    1
}

fn main() {
    foreign();
}
