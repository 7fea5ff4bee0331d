//! The promises, kept behind actix-web.

use distlock::{LockError, LockManager, LockMiddleware};
use distlock_web_tests::promises;
use distlock_web_tests::site::actix::{serve, serve_attentively};

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
    a_client_that_is_gone_leaves_no_lock_after_its_handler
}

promises! { serve_attentively;
    a_client_that_is_gone_leaves_no_lock
}

#[test]
fn a_middleware_can_be_checked_before_it_is_used() {
    let layer = || LockMiddleware::new(LockManager::in_memory());
    assert!(layer().key("order:{order_id}").checked().is_ok());
    let wrong = layer().key("order:{order_id:05}").checked();
    assert!(matches!(
        wrong,
        Err(LockError::InvalidOption { details, .. }) if details.contains("write `{order_id}`")
    ));
}
