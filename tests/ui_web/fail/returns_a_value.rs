use axum::Json;
use axum::http::StatusCode;
use distlock::redis_lock;

//~ ERROR "Json<u64>" a handler of axum says `-> impl IntoResponse`: then the error is its response
#[redis_lock(key = "a")]
async fn json() -> Json<u64> {
    Json(1)
}

//~ ERROR "String" a handler of actix-web says `-> impl Responder`
#[redis_lock(key = "a")]
async fn text() -> String {
    "done".to_owned()
}

//~ ERROR "StatusCode" a handler of axum says `-> impl IntoResponse`
#[redis_lock(key = "a")]
async fn status() -> StatusCode {
    StatusCode::OK
}

fn main() {
    drop((json(), text(), status()));
}
