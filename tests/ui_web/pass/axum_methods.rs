use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use distlock::{LockManager, redis_lock};

struct Shop {
    locks: Arc<LockManager>,
}

impl Shop {
    #[redis_lock(key = "{id}", manager = self.locks)]
    async fn answer(&self, id: u64) -> impl IntoResponse {
        id.to_string()
    }

    #[redis_lock(key = "{id}", manager = self.locks)]
    async fn borrowing<'a>(&'a self, id: &'a str) -> impl IntoResponse + use<'a> {
        id.to_owned()
    }
}

#[async_trait::async_trait]
trait Pay {
    async fn pay(&self, id: u64) -> Result<Response, StatusCode>;
}

#[async_trait::async_trait]
impl Pay for Shop {
    #[redis_lock(key = "{id}", manager = self.locks)]
    async fn pay(&self, id: u64) -> Result<Response, StatusCode> {
        Ok(self.answer(id).await.into_response())
    }
}

fn main() {
    let shop = Shop { locks: Arc::new(LockManager::in_memory()) };
    drop((shop.answer(1), shop.borrowing("1"), shop.pay(1)));
}
