use distlock::redis_lock;

//~ ERROR "None" write `map_err = |_| the error to return`
#[redis_lock(key = "{id}", map_err = None)]
async fn locked(id: u64) -> Result<u64, Option<u8>> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
