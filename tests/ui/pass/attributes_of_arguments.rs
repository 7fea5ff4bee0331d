#![deny(warnings)]

use distlock::{LockError, redis_lock};

/// Documented.
#[must_use]
#[redis_lock(key = "{id}")]
#[inline]
pub async fn locked(
    id: u64,
    #[allow(unused)] allowed: u8,
    #[cfg(any())] gone: Missing,
    #[cfg(all())] here: u8,
) -> Result<u8, LockError> {
    Ok(here)
}

#[cfg_attr(all(), redis_lock(key = "a"))]
pub async fn configured() -> Result<(), LockError> {
    Ok(())
}

#[redis_lock(key = "a")]
#[expect(unused_variables)]
pub async fn expected(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((locked(1, 2, 3), configured(), expected(1)));
}
