use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use distlock::redis_lock;

#[redis_lock(key = "{id}")]
#[axum::debug_handler]
async fn above(Path(id): Path<u64>) -> Result<String, StatusCode> {
    Ok(id.to_string())
}

#[axum::debug_handler]
#[redis_lock(key = "{id}")]
async fn below(Path(id): Path<u64>) -> impl IntoResponse {
    id.to_string()
}

fn main() {
    let router: Router = Router::new().route("/1/{id}", post(above)).route("/2/{id}", post(below));
    drop(router);
}
