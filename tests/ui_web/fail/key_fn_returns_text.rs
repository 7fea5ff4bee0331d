use axum::http::request::Parts;
use distlock::{LockLayer, LockManager};

fn main() {
    let layer = LockLayer::new(LockManager::in_memory());
    //~ ERROR "key_fn" make a key with `key!("…{name}…")` or `LockKey::from(text)`
    drop(layer.key_fn(|parts: &Parts| Some(parts.uri.path().to_owned())));
}
