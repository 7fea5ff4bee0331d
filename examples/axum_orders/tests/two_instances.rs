//! Two instances on one Redis server, which customers and the server's death try hard.

#[path = "../../orders_load/trial/mod.rs"]
mod trial;

const PROGRAM: &str = env!("CARGO_BIN_EXE_axum_orders");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_order_is_paid_twice_and_the_balances_add_up() {
    trial::under_load(PROGRAM).await;
}

/// Fault: WM4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_answer_is_503_until_it_is_back() {
    trial::without_redis(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_leaves_no_lock() {
    trial::client_gone(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh2_an_order_has_one_lock_however_its_number_is_spelled() {
    trial::spellings(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh2_of_many_payments_and_cancellations_of_an_order_one_is_carried_out() {
    trial::many_spellings(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wm8_who_will_not_wait_is_answered_423_at_once() {
    trial::ten_at_once(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wm7_payments_of_different_customers_run_side_by_side() {
    trial::side_by_side(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wl2_sigterm_lets_who_is_at_work_finish_and_leaves_no_lock() {
    trial::terminated(PROGRAM).await;
}

#[test]
fn wl2_a_service_that_cannot_start_says_why_and_helps_who_asks() {
    trial::start(PROGRAM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_each_names_who_holds_a_lock_and_who_waits() {
    trial::board(PROGRAM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_is_told_of_locks() {
    trial::metrics(PROGRAM).await;
}
