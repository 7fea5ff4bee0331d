//! The promises, kept behind axum.

use distlock::{LockError, LockLayer, LockManager};
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
    a_bad_template_is_named_in_the_log
    a_key_too_long_is_400
    a_lost_lease_stops_the_handler
    the_attribute_inside_a_layer_is_nested
    a_body_streams_after_the_layers_lock
    a_lock_in_the_body_lasts_as_long
    a_lock_in_the_body_of_a_client_that_is_gone_is_freed
    a_client_that_is_gone_leaves_no_lock
    the_busy_status_is_the_managers
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
    assert!(layer().key("order:{order_id}").checked().is_ok());
    let mend = |layer: LockLayer| match layer.checked() {
        Err(LockError::InvalidOption { details, .. }) => details.into_string(),
        other => panic!("{other:?}"),
    };
    assert!(mend(layer().key("{a}{b}")).contains("write `{a}:{b}`"));
    assert!(mend(layer()).contains(".key_fn("));
    let short = layer().key("a").ttl(std::time::Duration::ZERO);
    assert!(mend(short).starts_with("ttl: "));
}
