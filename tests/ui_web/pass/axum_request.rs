//! `Request` is `Send` and not `Sync`: it moves into the body.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use distlock::redis_lock;

#[redis_lock(key = "{id}")]
async fn read(Path(id): Path<u64>, request: Request) -> Result<Response, StatusCode> {
    let body = to_bytes(request.into_body(), 1024).await.map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Response::new(Body::from(format!("{id}: {}", body.len()))))
}

fn main() {
    let router: Router = Router::new().route("/{id}", post(read));
    drop(router);
}
