use distlock::{LockError, redis_lock};

fn fallback(_: LockError) -> u64 {
    0
}

struct Shop;

impl Shop {
    fn fallback<T: Default>(_: LockError) -> T {
        T::default()
    }

    #[redis_lock(key = "{id}", on_fail = Self::fallback)]
    async fn method(&self, id: u64) -> u64 {
        id
    }
}

#[redis_lock(key = "{id}", on_fail = fallback)]
async fn locked(id: u64) -> u64 {
    id
}

#[redis_lock(key = "{id}", on_fail = drop)]
async fn nothing(id: u64) {
    let _ = id;
}

fn main() {
    drop((locked(1), nothing(1), Shop.method(1)));
}
