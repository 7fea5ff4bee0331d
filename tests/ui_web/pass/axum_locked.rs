use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::routing::post;
use distlock::axum::LockedRejection;
use distlock::{LockError, LockKey, Locked, key};

struct Order(u64);

impl<S: Send + Sync> FromRequestParts<S> for Order {
    type Rejection = axum::extract::rejection::PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Path::from_request_parts(parts, state).await.map(|Path(id)| Self(id))
    }
}

impl From<Order> for LockKey {
    fn from(Order(id): Order) -> Self {
        key!("order:{id}")
    }
}

async fn token(lock: Locked<Order>) -> String {
    lock.fencing_token().to_string()
}

async fn released(lock: Locked<Order>) -> Result<(), LockError> {
    lock.into_guard().release().await
}

async fn perhaps(
    lock: Result<Locked<Order>, LockedRejection<axum::extract::rejection::PathRejection>>,
) -> String {
    match lock {
        Ok(lock) => lock.fencing_token().to_string(),
        Err(LockedRejection::Lock(error)) if error.is_busy() => "later".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn main() {
    let router: Router = Router::new()
        .route("/1/{id}", post(token))
        .route("/2/{id}", post(released))
        .route("/3/{id}", post(perhaps));
    drop(router);
}
