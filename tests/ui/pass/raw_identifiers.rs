use distlock::{LockError, redis_lock};

#[redis_lock(key = "{type}:{match.r#in}")]
async fn r#loop(r#type: u64, r#match: Words) -> Result<u64, LockError> {
    Ok(r#type + u64::from(r#match.r#in))
}

#[redis_lock(key = "{type}")]
async fn plain(r#type: u64) -> Result<u64, LockError> {
    Ok(r#type)
}

struct Words {
    r#in: u8,
}

fn main() {
    drop((r#loop(1, Words { r#in: 2 }), plain(1)));
}
