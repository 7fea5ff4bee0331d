use async_trait::async_trait;
use distlock::{LockError, redis_lock};

#[async_trait(?Send)]
trait Local {
    async fn run(&self, id: std::rc::Rc<str>) -> Result<usize, LockError>;
}

struct Here;

#[async_trait(?Send)]
impl Local for Here {
    #[redis_lock(key = "{id}")]
    async fn run(&self, id: std::rc::Rc<str>) -> Result<usize, LockError> {
        std::future::ready(()).await;
        Ok(id.len())
    }
}

fn main() {
    drop(Here.run("a".into()));
}
