use distlock::{LockError, redis_lock};

#[redis_lock(key = "{{user}}:{id}:{{}}")]
async fn tagged(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "{{{id}}}:{order.0}")]
async fn around(id: u64, order: (u8,)) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = r#"raw "{id}""#)]
async fn raw(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "line\n\u{e9}:{id}\
    :rest")]
async fn escapes(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((tagged(1), around(1, (2,)), raw(1), escapes(1)));
}
