use distlock::redis_lock;

#[redis_lock(key = "{id}", on_fail = |error| if error.is_busy() { 0 } else { 1 })]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
