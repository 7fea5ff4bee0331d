use distlock::{LockError, redis_lock};

//~ ERROR "locked()" future cannot be sent between threads safely
#[redis_lock(key = "a")]
async fn locked() -> Result<(), LockError> {
    let local = std::rc::Rc::new(1);
    std::future::pending::<()>().await;
    drop(local);
    Ok(())
}

fn is_send<T: Send>(_: T) {}

fn main() {
    is_send(locked());
}
