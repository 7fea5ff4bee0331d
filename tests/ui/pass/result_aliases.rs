use std::error::Error;

use distlock::{LockError, redis_lock};

#[derive(Debug)]
struct Failure;

impl From<LockError> for Failure {
    fn from(_: LockError) -> Self {
        Self
    }
}

type Answer<T, E = Failure> = std::result::Result<T, E>;
type Done = Answer<()>;

trait Has {
    type Output;
}

impl Has for u8 {
    type Output = Result<(), Failure>;
}

#[redis_lock(key = "a")]
async fn alias() -> Answer<u8> {
    Ok(1)
}

#[redis_lock(key = "a")]
async fn whole_alias() -> Done {
    Ok(())
}

#[redis_lock(key = "a")]
async fn projection() -> <u8 as Has>::Output {
    Ok(())
}

#[redis_lock(key = "a")]
async fn boxed() -> Result<(), Box<dyn Error>> {
    Ok(())
}

#[redis_lock(key = "a")]
async fn boxed_send() -> Result<(), Box<dyn Error + Send + Sync + 'static>> {
    Ok(())
}

fn main() {
    drop((alias(), whole_alias(), projection(), boxed(), boxed_send()));
}
