use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id}"" write the text alone
//~ ERROR ""b:{id}"" write the text alone
#[redis_lock(keys = ["a", &"a:{id}", String::from("b:{id}")])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
