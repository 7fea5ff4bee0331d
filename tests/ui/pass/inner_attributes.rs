use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}")]
async fn inner(id: u64) -> Result<u64, LockError> {
    #![allow(unused_variables)]
    #![allow(unreachable_code)]

    let nobody = 1;
    return Ok(id);
    Ok(2)
}

fn main() {
    drop(inner(1));
}
