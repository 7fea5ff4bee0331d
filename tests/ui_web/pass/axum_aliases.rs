use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as Reply, Response as Answer};
use axum::routing::post;
use distlock::redis_lock;

type Said<T = Answer> = T;
type Status<T> = Result<T, axum::http::StatusCode>;

/// What this service answers with.
trait OfOurs: Reply {}
impl<T: Reply> OfOurs for T {}

#[redis_lock(key = "{id}")]
async fn response(Path(id): Path<u64>) -> Said {
    id.to_string().into_response()
}

#[redis_lock(key = "{id}")]
async fn status(Path(id): Path<u64>) -> Status<String> {
    Ok(id.to_string())
}

#[redis_lock(key = "{id}")]
async fn of_axum(Path(id): Path<u64>) -> axum::response::Result<String> {
    Ok(id.to_string())
}

#[redis_lock(key = "{id}")]
async fn renamed_trait(Path(id): Path<u64>) -> impl Reply {
    id.to_string()
}

#[redis_lock(key = "{id}")]
async fn own_trait(Path(id): Path<u64>) -> impl OfOurs {
    id.to_string()
}

fn main() {
    let router: Router = Router::new()
        .route("/1/{id}", post(response))
        .route("/2/{id}", post(status))
        .route("/3/{id}", post(of_axum))
        .route("/4/{id}", post(renamed_trait))
        .route("/5/{id}", post(own_trait));
    drop(router);
}
