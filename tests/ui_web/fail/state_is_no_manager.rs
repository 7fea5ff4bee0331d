use axum::extract::State;
use distlock::{LockError, LockManager, redis_lock};

#[derive(Clone)]
struct App {
    locks: LockManager,
}

//~ ERROR "app" is not a lock manager
#[redis_lock(key = "a", manager = app)]
async fn locked(app: State<App>) -> Result<(), LockError> {
    drop(app.locks.clone());
    Ok(())
}

fn main() {
    drop(locked(State(App { locks: LockManager::in_memory() })));
}
