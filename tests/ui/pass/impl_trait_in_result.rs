use std::fmt::Display;

use distlock::{LockError, redis_lock};

#[redis_lock(key = "a")]
async fn shown(id: u64) -> Result<impl Display, LockError> {
    if id == 0 {
        return Ok("none".to_owned());
    }
    Ok(id.to_string())
}

#[redis_lock(key = "a")]
async fn nested() -> Result<Vec<(impl Display, Option<impl Sized>)>, LockError> {
    Ok(vec![(1, Some(2))])
}

fn main() {
    drop((shown(1), nested()));
}
