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
//! Lints of the user's do not fire because of the options.

use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, redis_lock};

/// A shop.
struct Shop {
    tenant: String,
}

impl Shop {
    #[redis_lock(keys = ["{self.tenant}:{id}", "b"], max_hold = "5s", when = id > 5)]
    async fn sell(&mut self, id: u64) -> Result<u64, LockError> {
        self.tenant.clear();
        Ok(id)
    }

    #[redis_lock(key("{}", self.tenant.len()), guard = lock, map_err = |error| error.to_string())]
    async fn guarded(&self, mut count: u64) -> Result<u64, String> {
        count += lock.fencing_token();
        Ok(count)
    }

    #[redis_lock(key = "{self.tenant}", on_fail = |_| self.tenant.len())]
    fn returned(&self) -> Pin<Box<dyn Future<Output = usize> + Send + '_>> {
        Box::pin(async move { self.tenant.len() })
    }
}

#[redis_lock(key = "unit", on_fail = skip)]
async fn unit() {}

#[redis_lock(key = "one_line:{id}", on_fail = skip)]
async fn one_line(id: u64) -> Option<u64> { Some(id) }

fn main() {
    let mut shop = Shop { tenant: String::new() };
    drop(shop.sell(1));
    drop(shop.guarded(1));
    drop(shop.returned());
    drop((unit(), one_line(1)));
}
