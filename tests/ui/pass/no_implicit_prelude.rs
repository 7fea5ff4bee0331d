//~ ALONE an attribute of the whole crate
#![no_implicit_prelude]

use ::core::option::Option::{self, Some};
use ::core::result::Result::{self, Ok};
use ::distlock::{LockError, redis_lock};

#[redis_lock(key = "{a}:{b.0}", ttl = "5s", wait = "1s")]
async fn locked(a: u8, b: (u8,)) -> Result<u8, LockError> {
    Ok(a + b.0)
}

#[redis_lock(keys = ["{a}", key("{}", a)], when = a > 5, map_err = |error| error)]
async fn conditional(a: u8) -> Result<u8, LockError> {
    Ok(a)
}

#[redis_lock(key = "{a}", on_fail = skip)]
async fn skipping(a: u8) -> Option<u8> {
    Some(a)
}

#[redis_lock(key = "{a}")]
fn returned(a: u8) -> impl ::core::future::Future<Output = Result<u8, LockError>> {
    async move { Ok(a) }
}

fn main() {
    let _ = ::distlock::key!("a");
    let _ = (locked(1, (2,)), conditional(1), skipping(1), returned(1));
}
