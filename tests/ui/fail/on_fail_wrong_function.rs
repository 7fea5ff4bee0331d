use distlock::redis_lock;

fn fallback(_: std::io::Error) -> u64 {
    0
}

//~ ERROR "fallback" type mismatch in function arguments
#[redis_lock(key = "{id}", on_fail = fallback)]
async fn locked(id: u64) -> u64 {
    id
}

fn main() {
    drop(locked(1));
}
