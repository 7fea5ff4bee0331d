use axum::response::IntoResponse;
use distlock::redis_lock;

struct NoResponse;

//~ ERROR "impl IntoResponse" the trait bound `NoResponse: IntoResponse` is not satisfied
#[redis_lock(key = "a")]
//~ ERROR "{ NoResponse }" the trait bound `NoResponse: IntoResponse` is not satisfied
async fn locked() -> impl IntoResponse {
    NoResponse
}

fn main() {
    drop(locked());
}
