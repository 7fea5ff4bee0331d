use distlock::redis_lock;

#[redis_lock(key = "{id}", on_fail = skip, map_err = |error| error.to_string())]
async fn locked(id: u64) -> Result<Option<u64>, String> {
    Ok(Some(id))
}

fn main() {
    drop(locked(1));
}
