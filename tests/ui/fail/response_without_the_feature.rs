use distlock::redis_lock;

struct Response;
struct StatusCode;

//~ ERROR "Response" axum's `Response` and actix-web's `HttpResponse` will do with the feature `axum` or `actix` of distlock
#[redis_lock(key = "a")]
async fn response() -> Response {
    Response
}

//~ ERROR "Result<(), StatusCode>" axum's `StatusCode` and actix-web's `Error` will do with the feature `axum` or `actix` of distlock
#[redis_lock(key = "a")]
async fn status() -> Result<(), StatusCode> {
    Err(StatusCode)
}

fn main() {
    drop((response(), status()));
}
