use axum::http::StatusCode;
use distlock::redis_lock;

//~ ERROR "(StatusCode, String)" StatusCode, String)` cannot be made from a `distlock::LockError`
#[redis_lock(key = "a")]
async fn pair() -> (StatusCode, String) {
    (StatusCode::OK, "done".to_owned())
}

//~ ERROR "Result<String, u16>" `u16` cannot be made from a `distlock::LockError`
#[redis_lock(key = "a")]
async fn number() -> Result<String, u16> {
    Ok("done".to_owned())
}

fn main() {
    drop((pair(), number()));
}
