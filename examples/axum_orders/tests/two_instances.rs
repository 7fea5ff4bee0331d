//! Two instances on one Redis server, which customers and the server's death try hard.

#[path = "../../orders_load/trial/mod.rs"]
mod trial;

const PROGRAM: &str = env!("CARGO_BIN_EXE_axum_orders");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_order_is_paid_twice_and_the_balances_add_up() {
    trial::under_load(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_answer_is_503_until_it_is_back() {
    trial::without_redis(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_leaves_no_lock() {
    trial::client_gone(PROGRAM).await;
}
