//~ EDITIONS 2018 2021 2024
use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;
use distlock::{LockError, redis_lock};

struct Shop {
    tenant: String,
}

impl Shop {
    #[redis_lock(key = "{self.tenant}:{id}", ttl = "5s", wait = "1s")]
    async fn sell(&mut self, id: u64, text: String) -> Result<u64, LockError> {
        self.tenant.clear();
        Ok(id + text.len() as u64)
    }

    #[redis_lock(key("{}", text.len()), guard = lock, on_fail = |error| format!("{text}{error}"))]
    async fn guarded(&self, text: String) -> String {
        format!("{}{}", text, lock.fencing_token())
    }

    #[redis_lock(keys = ["{self.tenant}", "b:{dyn}"], when = r#dyn > 5, on_fail = skip)]
    async fn conditional(&self, r#dyn: u64) -> Option<u64> {
        Some(r#dyn)
    }

    #[redis_lock(key = "{self.tenant}", prefix = none)]
    fn returned<'a>(&'a self) -> Pin<Box<dyn Future<Output = Result<usize, LockError>> + Send + 'a>> {
        if self.tenant.is_empty() {
            return Box::pin(async { Ok(0) });
        }
        Box::pin(async move { Ok(self.tenant.len()) })
    }
}

#[async_trait]
trait Store {
    async fn save(&self, pair: (u64, u64)) -> Result<u64, LockError>;
}

#[async_trait]
impl Store for Shop {
    #[redis_lock(key = "{self.tenant}:{a}:{b}")]
    async fn save(&self, (a, b): (u64, u64)) -> Result<u64, LockError> {
        Ok(a + b)
    }
}

fn is_send<T: Send>(value: T) -> T {
    value
}

fn main() {
    let mut shop = Shop { tenant: String::new() };
    drop(is_send(shop.sell(1, String::new())));
    drop((shop.guarded(String::new()), shop.conditional(1), shop.returned(), shop.save((1, 2))));
}
