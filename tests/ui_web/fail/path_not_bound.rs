use axum::extract::Path;
use distlock::{LockError, redis_lock};

//~ ERROR "{id}" of an extractor use what is in it: `{id.0}`, or bind it, `Path(id): Path<u64>`
#[redis_lock(key = "order:{id}")]
async fn whole(id: Path<u64>) -> Result<u64, LockError> {
    Ok(id.0)
}

//~ ERROR "{path}" `other_name` has no argument `path`: there is `{id}`
#[redis_lock(key = "order:{path}")]
async fn other_name(Path(id): Path<u64>) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
