use distlock::{LockError, redis_lock};

//~ ERROR "parse" type annotations needed
#[redis_lock(key("a:{}", text.parse().unwrap_or_default()))]
async fn locked(text: &str) -> Result<(), LockError> {
    let _: &str = text;
    Ok(())
}

fn main() {
    drop(locked("1"));
}
