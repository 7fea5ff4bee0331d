use distlock::redis_lock;

#[derive(Debug)]
struct Order(String);

struct Shop(String);

impl Shop {
    #[redis_lock(key = "{id}", on_fail = |_| format!("{}{id}", self.0))]
    async fn shared(&self, id: u64) -> String {
        format!("{}{id}", self.0)
    }

    #[redis_lock(key = "{id}", on_fail = |_| { self.0.push('x'); id })]
    async fn exclusive(&mut self, id: u64) -> u64 {
        self.0.clear();
        id
    }

    #[redis_lock(key = "{self.0}", map_err = |_| self.0.clone())]
    async fn owned(self) -> Result<usize, String> {
        Ok(self.0.len())
    }
}

#[redis_lock(key = "{order.0}", on_fail = |error| format!("{order:?} {error}"))]
async fn locked(order: Order) -> String {
    format!("{order:?}")
}

#[redis_lock(key = "a", on_fail = move |_| order.0)]
async fn moved(order: Order) -> String {
    String::new()
}

fn main() {
    let mut shop = Shop(String::new());
    drop(shop.shared(1));
    drop(shop.exclusive(1));
    drop(shop.owned());
    drop((locked(Order(String::new())), moved(Order(String::new()))));
}
