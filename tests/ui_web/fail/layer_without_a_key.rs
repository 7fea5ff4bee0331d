use axum::Router;
use axum::routing::post;
use distlock::{LockLayer, LockManager};

async fn pay() {}

fn main() {
    let layer = LockLayer::new(LockManager::in_memory()).wait(std::time::Duration::from_secs(1));
    //~ ERROR "route_layer" add `.key("order:{order_id:u64}")`
    let app: Router = Router::new().route("/pay", post(pay)).route_layer(layer);
    drop(app);
}
