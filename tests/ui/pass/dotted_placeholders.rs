use distlock::{LockError, redis_lock};

struct Item {
    id: u64,
    r#type: &'static str,
}

struct Order {
    item: Item,
    pair: (u8, (char, u16)),
}

struct Shop {
    tenant: String,
}

impl Shop {
    #[redis_lock(key = "{self.tenant}:{order.item.id}:{order.item.type}:{order.pair.1.0}:{n}")]
    async fn sell(&self, order: Order, n: u8) -> Result<Order, LockError> {
        Ok(order)
    }
}

static SHOP: Item = Item { id: 1, r#type: "shop" };

#[redis_lock(key = "{SHOP.id:05}/{n}")]
async fn of_a_static(n: u8) -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let item = Item { id: 1, r#type: "book" };
    let order = Order { item, pair: (1, ('x', 2)) };
    assert!(order.pair.0 == 1 && order.pair.1.1 == 2);
    let shop = Shop { tenant: String::new() };
    drop((shop.sell(order, 1), of_a_static(1)));
}
