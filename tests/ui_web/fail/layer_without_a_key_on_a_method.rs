use axum::Router;
use axum::routing::post;
use distlock::{LockLayer, LockManager};

async fn pay() {}

fn main() {
    let layer = LockLayer::new(LockManager::in_memory());
    //~ ERROR "route_layer" this layer does not say what to lock
    let app: Router = Router::new().route("/pay", post(pay).route_layer(layer));
    drop(app);
}
