use distlock::redis_lock;

#[redis_lock(key = "{id}", map_err = |error| error.to_string())]
async fn locked(id: u64) -> Result<u64, String> {
    Ok(id)
}

#[redis_lock(key = "{id}", map_err = |error| error.is_busy().into())]
async fn inferred(id: u64) -> Result<u64, i32> {
    Ok(id)
}

#[redis_lock(key = "{id}", map_err = |error| format!("{id}: {error}"))]
async fn with_argument(id: u64) -> Result<impl Sized, String> {
    Ok(id)
}

fn main() {
    drop((locked(1), inferred(1), with_argument(1)));
}
