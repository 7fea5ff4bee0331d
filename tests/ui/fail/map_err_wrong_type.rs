use distlock::redis_lock;

//~ ERROR "5" mismatched types
#[redis_lock(key = "{id}", map_err = |_| 5)]
async fn locked(id: u64) -> Result<u64, String> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
