use distlock::{LockError, redis_lock};

//~ ERROR "trait" not on a trait
#[redis_lock(key = "a")]
trait Service {
    fn run(&self) -> Result<(), LockError>;
}

fn main() {}
