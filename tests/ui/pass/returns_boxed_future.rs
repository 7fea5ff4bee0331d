use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, redis_lock};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

struct Service;

impl Service {
    #[redis_lock(key = "{id}")]
    fn pinned(&self, id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send + '_>> {
        if id == 0 {
            return Box::pin(std::future::ready(Ok(0)));
        }
        Box::pin(async move { Ok(id) })
    }

    #[redis_lock(key = "{id}", on_fail = |_| None)]
    fn named<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<usize>> {
        Box::pin(async move { Some(id.len()) })
    }

    #[redis_lock(key = "{id}", when = id > 0)]
    fn elided(&self, id: u64) -> BoxFuture<'_, Result<u64, LockError>> {
        let future = async move { Ok(id) };
        Box::pin(future)
    }
}

fn main() {
    drop((Service.pinned(1), Service.named("a"), Service.elided(1)));
}
