use distlock::{LockError, redis_lock};

struct Path<T>(T);

struct Order {
    id: u64,
    lines: [u8; 3],
}

#[redis_lock(key = "{id}:{a}:{b}:{first}:{order_id}:{whole}:{inner}")]
async fn patterns(
    Path(id): Path<u64>,
    (a, mut b): (u8, u8),
    Order { id: order_id, lines: [first, ..] }: Order,
    whole @ _: u8,
    &inner: &u8,
    _: u8,
) -> Result<u64, LockError> {
    b += 1;
    Ok(id + order_id + u64::from(a + b + first + whole + inner))
}

fn main() {
    drop(patterns(Path(1), (2, 3), Order { id: 4, lines: [5; 3] }, 6, &7, 8));
}
