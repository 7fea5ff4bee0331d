//~ EDITIONS 2021
//~ ALONE lints of the whole crate
#![deny(
    rust_2018_idioms,
    rust_2024_compatibility,
    future_incompatible,
    nonstandard_style,
    unused,
    keyword_idents,
    let_underscore,
    unreachable_pub,
    unused_import_braces,
    unused_qualifications,
    explicit_outlives_requirements,
    elided_lifetimes_in_paths,
    single_use_lifetimes,
    trivial_casts
)]
//! What the next edition warns of does not come from the attribute.

use std::future::Future;

use distlock::{LockError, LockManager, redis_lock};

struct Shop {
    id: u64,
}

impl Shop {
    #[redis_lock(key = "{self.id}", ttl = "5s", wait = "1s")]
    async fn shared(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(keys = ["{self.id}", key("{}", self.id)], when = self.id > 5)]
    async fn exclusive(&mut self) -> Result<(), LockError> {
        self.id += 1;
        Ok(())
    }

    #[redis_lock(key = "{self.id}", guard = lock, on_fail = skip)]
    async fn guarded(&self) -> Option<u64> {
        Some(lock.fencing_token())
    }

    #[redis_lock(key = "{self.id}", map_err = |error| error.to_string())]
    fn returned(&self) -> impl Future<Output = Result<u64, String>> + '_ {
        async move { Ok(self.id) }
    }
}

#[redis_lock(key = "{text}", manager = LockManager::in_memory(), prefix = "p", name = "n")]
async fn borrowing(text: &str) -> Result<&str, LockError> {
    Ok(text)
}

fn main() {
    let mut shop = Shop { id: 1 };
    drop(shop.exclusive());
    drop((shop.shared(), shop.guarded(), shop.returned(), borrowing("a")));
}
