use distlock::{LockError, redis_lock};

//~ ERROR "__guard" cannot find value `__guard`
//~ ERROR "__body" cannot find value `__body`
//~ ERROR "__key" cannot find value `__key`
#[redis_lock(key = "a")]
async fn locked() -> Result<u64, LockError> {
    drop((__guard, __body, __key));
    Ok(1)
}

fn main() {}
