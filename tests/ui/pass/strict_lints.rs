//~ ALONE lints of the whole crate
#![deny(
    unused,
    nonstandard_style,
    rust_2018_idioms,
    rust_2021_compatibility,
    rust_2024_compatibility,
    future_incompatible,
    let_underscore,
    missing_docs,
    single_use_lifetimes,
    trivial_casts,
    unreachable_pub,
    unsafe_code,
    unused_lifetimes,
    unused_import_braces,
    unused_qualifications,
    unused_results,
    variant_size_differences
)]
#![forbid(unsafe_op_in_unsafe_fn)]
//! Lints of the user's do not fire because of the expansion.

use distlock::{LockError, redis_lock};

/// A shop.
struct Shop {
    tenant: String,
}

impl Shop {
    #[redis_lock(key = "{self.tenant}:{id}", ttl = "5s", wait = "1s", renew = false)]
    async fn sell(&mut self, id: u64) -> Result<u64, LockError> {
        self.tenant.clear();
        Ok(id)
    }
}

#[allow(non_snake_case)]
#[redis_lock(key = "{orderId}:{_hidden}")]
async fn pay(orderId: u64, _hidden: u8, mut count: u8) -> Result<u64, LockError> {
    count += 1;
    Ok(orderId + u64::from(count))
}

#[redis_lock(key = "one_line:{id}")]
async fn one_line(id: u64) -> Result<u64, LockError> { Ok(id) }

#[redis_lock(key = "unit")]
async fn unit() -> Result<(), LockError> { Ok(()) }

#[deprecated]
struct Old;

#[allow(deprecated)]
#[redis_lock(key = "old")]
async fn old() -> Result<Old, LockError> { Ok(Old) }

fn main() {
    drop(Shop { tenant: String::new() }.sell(1));
    drop((pay(1, 2, 3), one_line(1), unit(), old()));
}
