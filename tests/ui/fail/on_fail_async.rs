use distlock::redis_lock;

//~ ERROR "async |_| 0" without `async`
#[redis_lock(key = "{id}", on_fail = async |_| 0)]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
