//! What a value is may be known only after the key is made.

use distlock::{LockKey, key};

fn pay(order_id: u64) -> u64 {
    order_id
}

fn order(text: &str) -> LockKey {
    let order_id = text.parse().unwrap_or_default();
    let key = key!("order:{order_id}");
    pay(order_id);
    key
}

fn numbers() -> LockKey {
    let (a, b) = (5, 7);
    let key = key!("{a}:{b:03}");
    pay(b);
    key
}

fn main() {
    drop((order("5"), numbers()));
}
