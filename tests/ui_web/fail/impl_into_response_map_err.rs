use axum::response::IntoResponse;
use distlock::redis_lock;

//~ ERROR "impl IntoResponse" say what to return instead with `on_fail = |error| …`
#[redis_lock(key = "a", map_err = |error| error.to_string())]
async fn locked() -> impl IntoResponse {
    "done"
}

fn main() {
    drop(locked());
}
