use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use distlock::{LockManager, redis_lock};

type Answer<T> = Result<Json<T>, (StatusCode, String)>;

#[redis_lock(key = "order:{id}")]
async fn pay(Path(id): Path<u64>) -> Result<Json<u64>, (StatusCode, String)> {
    Err((StatusCode::GONE, "sold out".to_owned()))
}

#[redis_lock(key = "order:{id}")]
async fn alias(Path(id): Path<u64>) -> Answer<u64> {
    let lock = LockManager::in_memory().lock("a").acquire().await?;
    lock.release().await?;
    Ok(Json(id))
}

fn main() {
    let router: Router = Router::new().route("/{id}", post(pay).put(alias));
    drop(router);
}
