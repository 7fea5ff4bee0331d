//! The promises, kept behind axum.

use axum::Router;
use axum::routing::get;
use distlock::{LockError, LockLayer, LockManager, LockStatus};
use distlock_testkit::HttpClient;
use distlock_web_tests::promises;
use distlock_web_tests::site::Site;
use distlock_web_tests::site::axum::serve;

promises! { serve;
    without_a_lock_additions_are_lost
    a_layer_excludes
    a_key_function_excludes
    the_extractor_excludes
    the_attribute_excludes
    all_of_them_exclude_each_other
    path_parameters_are_encoded
    parameters_of_nested_routes_count
    a_panic_leaves_no_lock
    a_lock_held_elsewhere_is_423
    no_key_no_lock
    a_store_that_is_gone_is_503
    a_missing_path_parameter_is_named_in_the_log
    a_missing_key_is_named_in_the_log
    a_key_too_long_is_400
    f9_a_value_is_one_lock_however_it_is_spelt
    wh2_a_layer_and_the_attribute_mean_the_same_number
    wh2_what_is_not_of_its_type_is_400
    f10_a_body_that_does_not_come_frees_the_lock
    wh3_a_body_that_has_come_is_no_matter
    wh3_a_body_that_nobody_reads_is_no_matter
    wh3_a_body_that_is_worked_on_piece_by_piece_is_no_matter
    wh3_a_body_read_in_another_task_is_bounded
    wh3_a_body_that_trickles_in_is_bounded
    wh5_an_optional_lock_is_a_try
    wh5_an_extractor_has_options_of_its_own
    readers_are_served_together
    permits_are_as_many_as_the_layer_says
    permits_and_a_mode_are_a_mistake
    wh5_without_a_manager_nobody_is_locked_by_another
    wl1_clients_are_sent_back_at_different_times
    wm3_a_path_without_a_route_stays_404
    wm3_a_mistake_is_logged_with_its_layer
    fw5_no_client_is_told_the_lock_its_lease_or_its_store
    wm5_a_layer_has_a_busy_status_of_its_own
    wm5_the_error_is_in_the_responses_extensions
    wm5_on_fail_answers
    wm5_a_key_function_may_answer
    wm5_a_layer_takes_several_locks_and_a_prefix
    wm5_the_fencing_token_is_in_the_requests_extensions
    wm6_an_error_of_any_kind_still_answers_423
    wl2_an_outage_does_not_fill_the_log
    a_lost_lease_stops_the_handler
    the_attribute_inside_a_layer_is_nested
    a_body_streams_after_the_layers_lock
    a_lock_in_the_body_lasts_as_long
    a_lock_in_the_body_of_a_client_that_is_gone_is_freed
    a_client_that_is_gone_leaves_no_lock
    the_busy_status_is_the_managers
    wm1_retry_after_is_the_managers
}

#[tokio::test]
async fn a_status_code_says_the_same_without_the_rest() {
    let site = Site::start(serve).await;
    let client = site.begin("/attribute/7/hold").await;
    site.work.wait_until_begun(1).await;
    let busy = site.post("/attribute/7/status").await;
    assert_eq!((busy.status, busy.body.as_str()), (423, ""));
    drop(client);
    site.nothing_is_locked().await;
}

#[tokio::test]
async fn a_path_that_is_no_text_is_the_clients_mistake() {
    let site = Site::start(serve).await;
    let refused = HttpClient::once(site.addr, "POST", "/layer/%FF/add").await.expect("an answer");
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[test]
fn a_layer_can_be_checked_before_it_is_used() {
    let layer = || LockLayer::new(LockManager::in_memory());
    assert!(layer().key("order:{order_id:u64}").checked().is_ok());
    let mend = |layer: LockLayer| match layer.checked() {
        Err(LockError::InvalidOption { details, .. }) => details.into_string(),
        other => panic!("{other:?}"),
    };
    assert!(mend(layer().key("a").ttl(std::time::Duration::ZERO)).starts_with("ttl: "));
    assert!(mend(layer().key("a").busy_status(200)).starts_with("busy_status: "));
    assert!(mend(layer().keys([""; 0])).starts_with("keys: none"));
    assert!(mend(layer().key("a").permits(0)).starts_with("permits: 0"));
    assert!(mend(layer().keys(["a", "b"]).permits(2)).starts_with("permits: not with several"));
    assert!(layer().key("a").permits(2).checked().is_ok());
}

#[test]
#[should_panic(expected = "write `{order_id:u64}` (or `i64`, `uuid`), `{order_id:str}` to take")]
fn wh2_a_placeholder_without_a_type_is_refused_when_the_layer_is_made() {
    drop(LockLayer::new(LockManager::in_memory()).key("order:{order_id}"));
}

/// Whatever is written as a route counts as one.
#[tokio::test]
async fn wm3_every_way_to_write_a_route_is_locked() {
    let locks = LockManager::in_memory();
    let told = || {
        let locks = locks.clone();
        get(async move || match locks.inspect("everything").await {
            Ok(LockStatus::Held { .. }) => "locked",
            _ => "not locked",
        })
    };
    let app: Router = Router::new()
        .route("/", told())
        .route("/plain", told())
        .route("/with/{param}", told())
        .route("/tail/{*tail}", told())
        .nest("/nested/{x}", Router::new().route("/", told()).route("/in", told()))
        .nest_service("/service/{x}", Router::new().route("/in", told()))
        .route_service("/served", told())
        .layer(LockLayer::new(locks.clone()).key("everything"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    for path in [
        "/",
        "/plain",
        "/with/7",
        "/tail/a/b",
        "/nested/1",
        "/nested/1/in",
        "/service/1/in",
        "/served",
    ] {
        let answer = HttpClient::once(addr, "GET", path).await.expect("an answer");
        assert_eq!(answer.body, "locked", "{path}");
    }
}

/// A nested service has no path of its own, and is locked by its parameters.
#[tokio::test]
async fn wm3_a_nested_service_is_locked_by_its_parameters() {
    let locks = LockManager::in_memory();
    let layer = LockLayer::new(locks.clone()).key("item:{item:u64}");
    let inner = Router::new().route("/in", get(async || "in"));
    let app: Router = Router::new().nest_service("/service/{item}", inner).route_layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let held = locks.lock("item:7").acquire().await.expect("free");
    let answer = HttpClient::once(addr, "GET", "/service/07/in").await.expect("an answer");
    assert_eq!(answer.status, 423, "{answer:?}");
    held.release().await.expect("freed");
    let answer = HttpClient::once(addr, "GET", "/service/07/in").await.expect("an answer");
    assert_eq!(answer.body, "in", "{answer:?}");
}
