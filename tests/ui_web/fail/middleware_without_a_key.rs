use actix_web::web;
use distlock::{LockManager, LockMiddleware};

fn main() {
    let middleware = LockMiddleware::new(LockManager::in_memory());
    //~ ERROR "middleware" add `.key("order:{order_id:u64}")`
    let resource = web::resource("/pay").wrap(middleware);
    //~ ERROR "drop" this layer does not say what to lock
    drop(resource);
}
