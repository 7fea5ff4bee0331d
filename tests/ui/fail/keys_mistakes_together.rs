use distlock::{LockError, redis_lock};

//~ ERROR ""a:{id"" write `{{` for a literal brace
//~ ERROR ""b:{}"" write the argument's name
//~ ERROR "5" a key is a text in quotes
#[redis_lock(keys = ["a:{id", "b:{}", 5])]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
