use distlock::{LockError, redis_lock};

//~ ERROR "mod" not on a module
#[redis_lock(key = "a")]
mod service {
    pub fn error() -> Option<super::LockError> {
        None
    }
}

fn main() {
    drop(service::error());
}
