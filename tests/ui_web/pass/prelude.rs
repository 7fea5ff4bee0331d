//! A glob import of the prelude takes no crate's name.

use actix_web::{HttpResponse, web};
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use distlock::prelude::*;

#[axum::debug_handler]
#[redis_lock(key = "order:{id}", manager = locks)]
async fn pay(
    State(locks): State<LockManager>,
    Path(id): Path<u64>,
) -> Result<Json<u64>, axum::http::StatusCode> {
    Ok(Json(id))
}

async fn locked(lock: Locked<Path<u64>>) -> u64 {
    lock.fencing_token()
}

#[actix_web::post("/{id}")]
async fn cancel(id: web::Path<u64>) -> actix_web::Result<HttpResponse, LockError> {
    drop(id);
    Ok(HttpResponse::Ok().finish())
}

fn main() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone()).key("a");
    let middleware = LockMiddleware::new(locks.clone()).key("a");
    let router: Router = Router::new().route("/{id}", post(pay)).route_layer(layer).with_state(locks);
    let _locked = locked;
    drop((router, actix_web::App::new().service(web::scope("/a").wrap(middleware).service(cancel))));
}
