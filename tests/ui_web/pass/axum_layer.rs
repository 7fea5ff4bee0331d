use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{get, post};
use distlock::{LockError, LockKey, LockLayer, LockManager, OnLost, route_key};

fn main() -> Result<(), LockError> {
    let locks = LockManager::in_memory();
    let every_option = LockLayer::new(locks.clone())
        .key(route_key!("order:{order_id:u64}"))
        .ttl(Duration::from_secs(5))
        .wait(Duration::from_secs(2))
        .renew(true)
        .max_hold(Duration::from_secs(60))
        .min_hold(Duration::ZERO)
        .on_lost(OnLost::Cancel)
        .body_timeout(Duration::from_secs(3))
        .busy_status(409)
        .retry_after(Duration::from_secs(2))
        .prefix("shop")
        .max_waiters(100)
        .on_fail(|error: &LockError| (StatusCode::CONFLICT, error.code()))
        .name("orders")
        .checked()?;
    let by_function = distlock::axum::LockLayer::new(locks)
        .key_fn(|parts: &Parts| Some(LockKey::from(parts.uri.path())))
        .wait(Duration::from_secs(2));
    let refusing = LockLayer::new(LockManager::in_memory()).key_fn(|parts: &Parts| {
        let tenant = parts.headers.get("tenant").ok_or(StatusCode::BAD_REQUEST)?;
        tenant.to_str().map(LockKey::from).map_err(|_| StatusCode::BAD_REQUEST)
    });
    let several =
        LockLayer::new(LockManager::in_memory()).keys([route_key!("a:{a:str}"), route_key!("b")]);
    let router: Router = Router::new()
        .route("/{a}", post(async || "several").route_layer(several))
        .route("/refusing", post(async || "paid").route_layer(refusing))
        .route("/orders/{order_id}", post(async || "paid").route_layer(every_option.clone()))
        .route("/orders/{order_id}/more", post(async || "more"))
        .route_layer(every_option.clone())
        .route("/whole", get(async || "whole"))
        .layer(by_function);
    drop(router);
    Ok(())
}
