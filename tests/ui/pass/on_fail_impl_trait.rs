use distlock::redis_lock;

#[redis_lock(key = "{id}", on_fail = |_| Vec::new())]
async fn locked(id: u64) -> impl IntoIterator<Item = u64> {
    vec![id]
}

fn main() {
    drop(locked(1));
}
