use distlock::{LockError, redis_lock};

struct Path<T>(T);
struct Shop;

//~ ERROR "{idd}" `near` has no argument `idd`: did you mean `{id}`?
#[redis_lock(key = "a:{idd}")]
async fn near(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

//~ ERROR "{path}" `other` has no argument `path`: there is `{id}`
#[redis_lock(key = "a:{path}:b")]
async fn other(Path(id): Path<u64>) -> Result<u64, LockError> {
    Ok(id)
}

//~ ERROR "{orderId:05}" `of_java` has no argument `orderId`: did you mean `{order_id}`? (there are `{order_id}`, `{item}`)
#[redis_lock(key = "a:{orderId:05}")]
async fn of_java(order_id: u64, item: u64) -> Result<u64, LockError> {
    Ok(order_id + item)
}

impl Shop {
    //~ ERROR "{tenant}" `many` has no argument `tenant`: there are `{self}`, `{a}`, `{b}`, `{N}`
    #[redis_lock(key = "{tenant}")]
    async fn many<const N: usize>(&self, a: u64, b: u64) -> Result<u64, LockError> {
        Ok(a + b)
    }
}

//~ ERROR "{id}" a constant is written in capitals; for any other value write `key("…{}…", value)`
#[redis_lock(key = "a:{id}")]
async fn none() -> Result<(), LockError> {
    Ok(())
}

//~ ERROR ""a:{ordr.0}"" `field` has no argument `ordr`: did you mean `{order}`?
#[redis_lock(key = "a:{ordr.0}")]
async fn field(order: Path<u64>) -> Result<u64, LockError> {
    Ok(order.0)
}

//~ ERROR "{totl}" `values` has no argument `totl`: did you mean `{total}`? (there are `{total}`, `{id}`)
#[redis_lock(key("{total}:{totl}", total = id + 1))]
async fn values(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
