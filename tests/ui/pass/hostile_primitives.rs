#![allow(dead_code, non_camel_case_types)]

type bool = ();
type u8 = ();
type u64 = ();
type str = ();
type usize = ();

#[distlock::redis_lock(key = "{id}", ttl = "5s", when = id > 5, on_fail = skip)]
async fn locked(id: i32) -> Result<(), distlock::LockError> {
    Ok(())
}

fn main() {
    drop(locked(1));
}
