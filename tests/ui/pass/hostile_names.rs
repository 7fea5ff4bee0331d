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
struct Ok;
struct Err;
struct Duration;
struct guard;
struct body;
trait Future {}
trait FromLockError {}
const request: u8 = 1;
static text: u8 = 2;
macro_rules! format { () => { compile_error!("not this one") } }
macro_rules! format_args { () => { compile_error!("not this one") } }
macro_rules! concat { () => { compile_error!("not this one") } }
macro_rules! module_path { () => { compile_error!("not this one") } }
macro_rules! pin { () => { compile_error!("not this one") } }

type Answer<T> = ::core::result::Result<T, distlock::LockError>;

#[distlock::redis_lock(key = "{key}:{value}:{ttl}:{error}", ttl = "5s", wait = "1s")]
#[allow(clippy::too_many_arguments)]
async fn arguments(
    key: u8,
    value: u8,
    ttl: u8,
    error: u8,
    output: u8,
    manager: u8,
    wait: u8,
    fail: u8,
) -> Answer<u8> {
    ::core::result::Result::Ok(key + value + ttl + error + output + manager + wait + fail)
}

#[distlock::redis_lock(key = "{name}")]
async fn fn_name_and_argument(name: &str, part: &str) -> Answer<usize> {
    ::core::result::Result::Ok(name.len() + part.len())
}

fn main() {
    drop((arguments(1, 2, 3, 4, 5, 6, 7, 8), fn_name_and_argument("a", "b")));
}
