use distlock::redis_lock;

//~ ERROR "|_: std::io::Error| 0" type mismatch in closure arguments
#[redis_lock(key = "{id}", map_err = |_: std::io::Error| 0)]
async fn locked(id: u64) -> Result<u64, u64> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
