use distlock::{LockError, redis_lock};

fn main() {
    #[redis_lock(key = "inner:{id}")]
    async fn inner(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }

    drop(async {
        let id = 1;
        #[redis_lock(key = "deeper:{id}")]
        async fn deeper(id: u64) -> Result<u64, LockError> {
            inner(id).await
        }
        deeper(id).await
    });
}
