use distlock::{LockError, redis_lock};

const REGION: &str = "eu";
static SHARD: u8 = 3;

struct Tenant<const N: usize>;

impl<const N: usize> Tenant<N> {
    #[redis_lock(key = "{REGION}:{SHARD}:{N}:{id}")]
    async fn locked(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }
}

#[redis_lock(key = "{REGION}:{N:03}")]
async fn only_constants<const N: usize>() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    drop((Tenant::<4>.locked(1), only_constants::<5>()));
}
