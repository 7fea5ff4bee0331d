use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::post;
use distlock::{LockKey, Locked, key};

#[derive(Clone)]
struct App;

#[derive(FromRequestParts)]
struct Order(#[from_request(via(Path))] u64);

impl From<Order> for LockKey {
    fn from(Order(id): Order) -> Self {
        key!("order:{id}")
    }
}

async fn pay(lock: Locked<Order>) -> String {
    lock.fencing_token().to_string()
}

//~ ERROR "Locked" derive `FromRef` for the state, with a field of type `LockManager`
#[axum::debug_handler(state = App)]
async fn pay_explained(lock: Locked<Order>) -> String {
    lock.fencing_token().to_string()
}

fn main() {
    //~ ERROR "pay" Consider using `#[axum::debug_handler]` to improve the error message
    let router: Router<App> = Router::new().route("/{id}", post(pay));
    drop((router, pay_explained));
}
