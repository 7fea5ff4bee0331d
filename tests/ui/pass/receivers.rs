use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use distlock::{LockError, redis_lock};

struct Service {
    id: u64,
}

impl Service {
    #[redis_lock(key = "{self.id}")]
    async fn by_ref(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }

    #[redis_lock(key = "{self.id}")]
    async fn by_mut(&mut self) -> Result<u64, LockError> {
        self.id += 1;
        Ok(self.id)
    }

    #[redis_lock(key = "{self.id}")]
    async fn by_value(mut self) -> Result<Self, LockError> {
        self.id += 1;
        Ok(self)
    }

    #[redis_lock(key = "{self.id}")]
    async fn in_arc(self: Arc<Self>) -> Result<Arc<Self>, LockError> {
        Ok(self)
    }

    #[redis_lock(key = "{self.id}")]
    async fn in_rc(self: Rc<Self>) -> Result<Rc<Self>, LockError> {
        Ok(self)
    }

    #[redis_lock(key = "{self.id}")]
    async fn in_box(self: Box<Self>) -> Result<Self, LockError> {
        Ok(*self)
    }

    #[redis_lock(key = "{self.id}")]
    async fn pinned(self: Pin<&mut Self>) -> Result<u64, LockError> {
        Ok(self.id)
    }

    #[redis_lock(key = "{id}")]
    async fn of_the_type(id: u64) -> Result<Self, LockError> {
        Ok(Self { id })
    }
}

fn main() {
    let mut service = Service { id: 1 };
    drop(service.by_ref());
    drop(service.by_mut());
    drop(Pin::new(&mut service).pinned());
    drop(service.by_value());
    drop(Arc::new(Service { id: 1 }).in_arc());
    drop(Rc::new(Service { id: 1 }).in_rc());
    drop(Box::new(Service { id: 1 }).in_box());
    drop(Service::of_the_type(1));
}
