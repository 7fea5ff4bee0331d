use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Path};
use axum::response::Response;
use axum::routing::post;
use distlock::axum::LockedRejection;
use distlock::{LockError, LockKey, LockManager, LockedOptions, Locked, key};

#[derive(FromRequestParts)]
struct Order(#[from_request(via(Path))] u64);

impl From<Order> for LockKey {
    fn from(Order(id): Order) -> Self {
        key!("order:{id}")
    }
}

struct Patient;

impl LockedOptions for Patient {
    const WAIT: Option<Duration> = Some(Duration::from_secs(2));
}

async fn token(lock: Locked<Order>) -> String {
    lock.fencing_token().to_string()
}

async fn patient(lock: Locked<Order, Patient>) -> String {
    lock.fencing_token().to_string()
}

async fn tried(lock: Option<Locked<Order>>) -> &'static str {
    if lock.is_some() { "locked" } else { "later" }
}

async fn released(lock: Locked<Order>) -> Result<(), LockError> {
    lock.into_guard().release().await
}

async fn perhaps(lock: Result<Locked<Order>, LockedRejection<Response>>) -> String {
    match lock {
        Ok(lock) => lock.fencing_token().to_string(),
        Err(LockedRejection::Lock(error)) if error.is_busy() => "later".to_owned(),
        Err(LockedRejection::Lock(error)) => error.to_string(),
        Err(_) => "no order".to_owned(),
    }
}

#[derive(Clone, FromRef)]
struct App {
    locks: LockManager,
}

fn routes<S: distlock::axum::HasLockManager + Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/1/{id}", post(token))
        .route("/2/{id}", post(released))
        .route("/3/{id}", post(perhaps))
        .route("/4/{id}", post(patient))
        .route("/5/{id}", post(tried))
}

fn main() {
    let locks = LockManager::in_memory();
    let app = App { locks: locks.clone() };
    drop([
        Router::<()>::new().merge(routes::<()>()),
        routes::<LockManager>().with_state(locks),
        routes::<Arc<App>>().with_state(Arc::new(app.clone())),
        routes::<App>().with_state(app.clone()),
        Router::new().route("/{id}", post(token)).with_state(app),
    ]);
}
