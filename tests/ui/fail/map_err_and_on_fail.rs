use distlock::redis_lock;

//~ ERROR "map_err" `on_fail` already decides about every error
#[redis_lock(key = "{id}", map_err = |_| (), on_fail = |_| Err(()))]
async fn locked(id: u64) -> Result<u64, ()> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
