use distlock::redis_lock;

//~ ERROR ""none"" mismatched types
#[redis_lock(key = "{id}", on_fail = |_| "none")]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
