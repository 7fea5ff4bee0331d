use distlock::{LockError, redis_lock};

struct Receipt(u64);

enum PayError {
    Lock(LockError),
}

impl From<LockError> for PayError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

#[redis_lock(key = "order:{order_id}", ttl = "5s", wait = "2s")]
async fn pay(order_id: u64) -> Result<Receipt, PayError> {
    Ok(Receipt(order_id))
}

fn main() {
    drop(async {
        match pay(7).await {
            Ok(receipt) => assert_eq!(receipt.0, 7),
            Err(PayError::Lock(error)) => assert!(error.is_busy()),
        }
    });
}
