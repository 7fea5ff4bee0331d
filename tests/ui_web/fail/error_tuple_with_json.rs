use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use distlock::redis_lock;

//~ ERROR "Result<Json<u64>, (StatusCode, Json<String>)>" make it with `map_err = |error| …`
#[redis_lock(key = "order:{id}")]
async fn pay(Path(id): Path<u64>) -> Result<Json<u64>, (StatusCode, Json<String>)> {
    Ok(Json(id))
}

fn main() {
    drop(pay(Path(1)));
}
