use axum::Extension;
use axum::extract::Path;
use distlock::{LockError, redis_lock};

#[redis_lock(key = "order:{id.0}")]
async fn field(id: Path<u64>) -> Result<u64, LockError> {
    Ok(id.0)
}

#[redis_lock(key = "order:{id}:{q.0}")]
async fn bound(Path(id): Path<u64>, q: Extension<u64>) -> Result<u64, LockError> {
    Ok(id)
}

#[redis_lock(key = "order:{id}")]
async fn of_actix(id: actix_web::web::Path<u64>) -> Result<u64, LockError> {
    Ok(*id)
}

fn main() {
    drop((field(Path(1)), bound(Path(1), Extension(1)), of_actix(2.into())));
}
