use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use distlock::Locked;

async fn pay(lock: Locked<Path<u64>>) -> String {
    lock.fencing_token().to_string()
}

fn main() {
    //~ ERROR "pay" Consider using `#[axum::debug_handler]` to improve the error message
    let router: Router = Router::new().route("/{id}", post(pay));
    drop(router);
}
