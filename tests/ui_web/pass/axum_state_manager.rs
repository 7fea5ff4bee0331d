use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::routing::post;
use axum::{Extension, Router};
use distlock::{LockError, LockManager, redis_lock};

#[derive(Clone, FromRef)]
struct App {
    locks: LockManager,
    shared: Arc<LockManager>,
}

#[redis_lock(key = "a", manager = locks)]
async fn taken_apart(State(locks): State<LockManager>) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn whole(locks: State<LockManager>) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn shared(locks: State<Arc<LockManager>>) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = app.locks)]
async fn field(State(app): State<App>) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn extension(locks: Extension<LockManager>) -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a", manager = locks)]
async fn anything_that_derefs<M: Deref<Target = LockManager>>(locks: M) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let locks = LockManager::in_memory();
    drop(anything_that_derefs(Box::new(locks.clone())));
    let router: Router = Router::new()
        .route("/1", post(taken_apart))
        .route("/2", post(whole))
        .route("/3", post(shared))
        .route("/4", post(field))
        .route("/5", post(extension))
        .layer(Extension(locks.clone()))
        .with_state(App { shared: Arc::new(locks.clone()), locks });
    drop(router);
}
