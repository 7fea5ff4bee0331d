use distlock::redis_lock;

//~ ERROR "|" type mismatch in closure arguments
#[redis_lock(key = "{id}", on_fail = |_: std::io::Error| 0)]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
