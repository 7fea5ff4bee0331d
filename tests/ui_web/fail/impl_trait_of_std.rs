use distlock::redis_lock;

//~ ERROR "impl std::fmt::Display" say what to return instead with `on_fail = |error| …`
#[redis_lock(key = "a")]
async fn displayed() -> impl std::fmt::Display {
    1
}

//~ ERROR "impl Iterator<Item = u8> + Send" a `LockError` cannot be made into an unknown type
#[redis_lock(key = "a")]
async fn iterated() -> impl Iterator<Item = u8> + Send {
    [1].into_iter()
}

fn main() {
    drop((displayed(), iterated()));
}
