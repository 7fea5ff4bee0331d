use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::{get, post};
use distlock::{LockError, LockKey, LockLayer, LockManager, OnLost};

fn main() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let every_option = LockLayer::new(locks.clone())
        .key("order:{order_id}")
        .ttl(Duration::from_secs(5))
        .wait(Duration::from_secs(2))
        .renew(true)
        .max_hold(Duration::from_secs(60))
        .min_hold(Duration::ZERO)
        .on_lost(OnLost::Cancel)
        .name("orders")
        .checked()?;
    let by_function = distlock::axum::LockLayer::new(locks)
        .key_fn(|parts: &Parts| Some(LockKey::from(parts.uri.path())))
        .wait(Duration::from_secs(2));
    let router: Router = Router::new()
        .route("/orders/{order_id}", post(async || "paid").route_layer(every_option.clone()))
        .route("/orders/{order_id}/more", post(async || "more"))
        .route_layer(every_option.clone())
        .route("/whole", get(async || "whole"))
        .layer(by_function);
    drop(router);
    Ok(())
}
