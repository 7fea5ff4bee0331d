use distlock::redis_lock;

//~ ERROR ""skip"" write `skip`, without quotes
#[redis_lock(key = "{id}", on_fail = "skip")]
async fn locked(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {
    drop(locked(1));
}
