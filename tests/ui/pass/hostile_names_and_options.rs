//~ ALONE its modules hide crates
#![allow(dead_code, non_camel_case_types, non_upper_case_globals, unused_macros)]

mod core {}
mod std {}
mod distlock_runtime {}

struct Box;
struct String;
struct Option;
struct Result;
struct Some;
struct None;
struct Ok;
struct Err;
struct Duration;
struct LockGuard;
struct OnLost;
struct Release;
trait Future {}
trait Skip {}
trait OrLog {}
trait OrReturn {}
const request: u8 = 1;
const error: u8 = 1;
const skip: u8 = 1;
macro_rules! format_args { () => { compile_error!("not this one") } }
macro_rules! vec { () => { compile_error!("not this one") } }
macro_rules! pin { () => { compile_error!("not this one") } }

type Answer<T> = ::core::result::Result<T, distlock::LockError>;

#[distlock::redis_lock(
    keys = ["{key}", key("{}:{wait}", key)],
    when = guard > 5,
    name = "n",
    min_hold = "1s",
    on_lost = continue,
    release = background,
    on_fail = skip,
)]
async fn conditional(key: u8, guard: u8, wait: u8, body: u8, lock: u8) -> Answer<()> {
    let _ = (guard, body, lock);
    ::core::result::Result::Ok(())
}

#[distlock::redis_lock(key = "{value}", guard = output, map_err = |result| result)]
async fn guarded(value: u8, manager: u8, __failed: u8, __guard: u8, __error: u8) -> Answer<u8> {
    let _ = output.is_held();
    ::core::result::Result::Ok(value + manager + __failed + __guard + __error)
}

#[distlock::redis_lock(key = "{future}", on_fail = |_| future)]
fn returned(future: u8) -> impl ::core::future::Future<Output = u8> {
    if future == 0 {
        return async_zero(future);
    }
    async_zero(future)
}

fn async_zero(future: u8) -> ::core::future::Ready<u8> {
    ::core::future::ready(future)
}

fn main() {
    drop((conditional(1, 2, 3, 4, 5), guarded(1, 2, 3, 4, 5), returned(1)));
}
