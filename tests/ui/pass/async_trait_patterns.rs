use async_trait::async_trait;
use distlock::{LockError, redis_lock};

#[async_trait]
trait Transfer {
    async fn transfer(&self, pair: (u64, u64), order: Order) -> Result<u64, LockError>;
}

struct Order {
    id: u64,
}

struct Bank;

#[async_trait]
impl Transfer for Bank {
    #[redis_lock(keys = ["account:{from}", "account:{to}", "order:{id}"], wait = "1s")]
    async fn transfer(
        &self,
        (from, to): (u64, u64),
        Order { id }: Order,
    ) -> Result<u64, LockError> {
        Ok(from + to + id)
    }
}

fn main() {
    drop(Bank.transfer((1, 2), Order { id: 3 }));
}
