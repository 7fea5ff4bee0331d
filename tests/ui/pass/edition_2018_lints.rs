//~ EDITIONS 2018
//~ ALONE lints of the whole crate
#![deny(rust_2018_idioms, rust_2021_compatibility, future_incompatible, unused)]
//! Among them: what closures capture changes with the next edition.

use distlock::{LockError, redis_lock};

#[redis_lock(key = "{pair.0}")]
async fn taken_apart(pair: (String, String)) -> Result<String, LockError> {
    drop(pair.0);
    Ok(pair.1)
}

#[redis_lock(key = "{pair.0}", map_err = |error| format!("{}{}", pair.1, error))]
async fn used_after(pair: (String, String)) -> Result<usize, String> {
    Ok(pair.0.len())
}

fn main() {
    let pair = || (String::new(), String::new());
    drop((taken_apart(pair()), used_after(pair())));
}
