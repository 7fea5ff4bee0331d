use distlock::redis_lock;

#[redis_lock(key = "{id}", map_err = |error| error.to_string())]
//~ ERROR "Option<u64>" `map_err` makes the error of a `Result`, and `Option<u64>` is none
async fn locked(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {
    drop(locked(1));
}
