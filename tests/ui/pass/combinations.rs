use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LockManager, redis_lock};

struct Order {
    id: u64,
    text: String,
}

struct Shop {
    locks: LockManager,
    names: Vec<String>,
    ttl: Duration,
}

impl Shop {
    async fn is_open(&self) -> bool {
        !self.names.is_empty()
    }

    fn limit(&self) -> Result<Duration, LockError> {
        Ok(self.ttl)
    }

    #[redis_lock(
        key = "{order.id}",
        guard = lock,
        on_fail = |error| (order.text.clone(), error.is_busy()),
    )]
    async fn guard_and_arguments(order: Order) -> (String, bool) {
        (order.text.clone(), lock.is_held())
    }

    #[redis_lock(keys = &self.names, manager = self.locks, when = self.is_open().await)]
    async fn awaits_in_an_option(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "a", ttl = self.limit()?, max_hold = self.limit()? * 5)]
    async fn fails_in_an_option(&self) -> Result<(), LockError> {
        Ok(())
    }

    #[redis_lock(key = "{self.names.len}")]
    #[cfg(any())]
    async fn not_compiled(&self) {}

    #[redis_lock(key = "a", map_err = |error| self.names.len() + usize::from(error.is_busy()))]
    async fn shared(self: Arc<Self>) -> Result<Arc<Self>, usize> {
        Ok(Arc::clone(&self))
    }

    #[redis_lock(key = "{T}:{N}", on_fail = |_| [0; N])]
    async fn constant<const N: usize, const T: u8>(&self) -> [u8; N] {
        [T; N]
    }
}

#[redis_lock(key = "{value}", on_fail = |_| value.to_string())]
async fn generic<T: std::fmt::Display>(value: T) -> String
where
    T: Clone,
{
    value.clone().to_string()
}

#[redis_lock(key = "a", on_fail = |error| Box::new(error) as Box<dyn std::error::Error>)]
async fn erased() -> Box<dyn std::error::Error> {
    "ran".into()
}

#[redis_lock(key = "a", on_fail = std::convert::identity)]
async fn identity() -> LockError {
    LockError::NotConfigured
}

#[redis_lock(key = "a", on_fail = |_: LockError| -> Option<u8> { None })]
async fn typed() -> Option<u8> {
    Some(1)
}

trait Native {
    #[redis_lock(key = "{id}", guard = lock, on_lost = continue)]
    async fn run(&self, id: u64) -> Result<u64, LockError>
    where
        Self: Sized,
    {
        Ok(lock.fencing_token() + id)
    }
}

impl Native for Shop {}

fn main() {
    let shop = Shop { locks: LockManager::in_memory(), names: Vec::new(), ttl: Duration::MAX };
    drop(Shop::guard_and_arguments(Order { id: 1, text: String::new() }));
    drop((shop.awaits_in_an_option(), shop.fails_in_an_option(), shop.run(1)));
    drop((shop.constant::<2, 3>(), generic(1), erased(), identity(), typed()));
    drop(Arc::new(shop).shared());
}
