use distlock::{LockError, redis_lock};

type Answer<T = ()> = Result<T, LockError>;

struct Order {
    id: u64,
    pair: (u8, u8),
}

struct Wrapper<T>(T);

#[redis_lock(key = "{order_id}:{a}:{b}")]
async fn renamed(Order { id: order_id, pair: (a, b) }: Order) -> Answer {
    Ok(())
}

#[redis_lock(key = "{id}")]
async fn by_reference(ref id: u64) -> Answer<u64> {
    Ok(*id)
}

#[redis_lock(key = "{whole.0}")]
async fn bound_twice(whole @ Wrapper(_): Wrapper<u64>) -> Answer<u64> {
    Ok(whole.0)
}

#[redis_lock(key = "{id}")]
async fn nested(Wrapper(Wrapper(id)): Wrapper<Wrapper<u64>>) -> Answer {
    Ok(())
}

#[redis_lock(key = "{first}:{last}")]
async fn with_rest((first, .., last): (u8, u8, u8)) -> Answer {
    Ok(())
}

#[redis_lock(key = "{text}", on_fail = |_| text.len())]
async fn used_after(Wrapper(text): Wrapper<String>) -> usize {
    text.len()
}

fn main() {
    drop((renamed(Order { id: 1, pair: (1, 2) }), by_reference(1), bound_twice(Wrapper(1))));
    drop((nested(Wrapper(Wrapper(1))), with_rest((1, 2, 3)), used_after(Wrapper(String::new()))));
}
