#![forbid(warnings, unused, nonstandard_style, unknown_lints, clippy::all)]
#![forbid(unreachable_code, deprecated, non_snake_case, unsafe_code, unused_variables)]

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{id}:{name}", ttl = "5s", wait = "1s")]
async fn locked(id: u64, name: &str) -> Result<usize, LockError> {
    Ok(name.len())
}

fn main() {
    drop(locked(1, "a"));
    let id = 1;
    assert_eq!(distlock::key!("{id}").as_str(), "1");
}
