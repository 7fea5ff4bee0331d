use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse};
use axum::routing::post;
use distlock::{LockManager, redis_lock};

#[redis_lock(key = "order:{id}")]
async fn plain(Path(id): Path<u64>) -> impl IntoResponse {
    (StatusCode::CREATED, Html(format!("<p>{id}</p>")))
}

#[redis_lock(key = "order:{id}", wait = "1s", manager = locks, when = id > 7)]
async fn with_when(
    State(locks): State<LockManager>,
    Path(id): Path<u64>,
) -> impl IntoResponse + use<> {
    if id == 0 {
        return Err(StatusCode::NOT_FOUND);
    }
    Ok(format!("{id}"))
}

#[redis_lock(key = "order:{id}", guard = lock)]
async fn with_guard(Path(id): Path<u64>) -> impl axum::response::IntoResponse + Send {
    lock.fencing_token().to_string()
}

#[redis_lock(key = "order:{id}", on_fail = |error| error.to_string())]
async fn with_on_fail(Path(id): Path<u64>) -> impl IntoResponse {
    id.to_string()
}

#[redis_lock(key = "order:{id}")]
async fn in_a_result(Path(id): Path<u64>) -> Result<impl IntoResponse, StatusCode> {
    Ok(id.to_string())
}

#[redis_lock(key = "order:{id}")]
fn future(id: u64) -> impl Future<Output = impl IntoResponse> {
    async move { id.to_string() }
}

fn main() {
    let router: Router<LockManager> = Router::new()
        .route("/1/{id}", post(plain))
        .route("/2/{id}", post(with_when))
        .route("/3/{id}", post(with_guard))
        .route("/4/{id}", post(with_on_fail))
        .route("/5/{id}", post(in_a_result))
        .route("/6/{id}", post(|Path(id): Path<u64>| future(id)));
    drop(router);
}
