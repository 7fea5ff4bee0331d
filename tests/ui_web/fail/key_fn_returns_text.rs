use axum::http::request::Parts;
use distlock::{LockLayer, LockManager};

fn main() {
    let layer = LockLayer::new(LockManager::in_memory());
    //~ ERROR "parts.uri.path().to_owned()" expected `LockKey`, found `String`
    drop(layer.key_fn(|parts: &Parts| Some(parts.uri.path().to_owned())));
}
