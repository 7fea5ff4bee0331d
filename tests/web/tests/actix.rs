//! The promises, kept behind actix-web.

use actix_web::{App, web};
use distlock::{LockError, LockManager, LockMiddleware, LockStatus};
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
    a_client_that_is_gone_leaves_no_lock_after_its_handler
}

promises! { serve_attentively;
    a_client_that_is_gone_leaves_no_lock
}

#[test]
fn a_middleware_can_be_checked_before_it_is_used() {
    let layer = || LockMiddleware::new(LockManager::in_memory());
    assert!(layer().key("order:{order_id:u64}").checked().is_ok());
    let wrong = layer().keys([""; 0]).checked();
    assert!(matches!(
        wrong,
        Err(LockError::InvalidOption { details, .. }) if details.starts_with("keys: none")
    ));
}

#[test]
#[should_panic(expected = "write `{order_id:u64}` (or `i64`, `uuid`), `{order_id:str}` to take")]
fn wh2_a_placeholder_without_a_type_is_refused_when_the_middleware_is_made() {
    drop(LockMiddleware::new(LockManager::in_memory()).key("order:{order_id}"));
}

/// Whatever is written as a route counts as one, and what leads nowhere does not.
#[actix_web::test]
async fn wm3_every_way_to_write_a_route_is_locked_and_no_other_path() {
    let locks = LockManager::in_memory();
    let one = || LockMiddleware::new(locks.clone()).key("everything");
    let told = || {
        let locks = locks.clone();
        web::to(move || {
            let locks = locks.clone();
            async move {
                match locks.inspect("everything").await {
                    Ok(LockStatus::Held { .. }) => "locked",
                    _ => "not locked",
                }
            }
        })
    };
    let app = App::new()
        .wrap(one())
        .route("/", told())
        .route("/plain", told())
        .route("/with/{param}", told())
        .route("/tail/{tail:.*}", told())
        .service(web::resource(["/first", "/second/{param}"]).route(told()))
        .service(web::scope("/scope").route("", told()).route("/", told()).route("/in", told()))
        .service(web::scope("/outer/{x}").service(web::scope("/inner").route("/{y}", told())))
        .service(web::scope("").route("/bare", told()));
    let app = actix_web::test::init_service(app).await;
    for path in [
        "/",
        "/plain",
        "/with/7",
        "/tail/a/b",
        "/first",
        "/second/7",
        "/scope",
        "/scope/",
        "/scope/in",
        "/outer/1/inner/2",
        "/bare",
    ] {
        let request = actix_web::test::TestRequest::with_uri(path).to_request();
        let answer = actix_web::test::call_and_read_body(&app, request).await;
        assert_eq!(answer, "locked", "{path}");
    }
    let held = locks.lock("everything").acquire().await.expect("free");
    for path in ["/nothing", "/scope/nothing", "/outer/1/nothing"] {
        let request = actix_web::test::TestRequest::with_uri(path).to_request();
        let answer = actix_web::test::call_service(&app, request).await;
        assert_eq!(answer.status(), 404, "{path}");
    }
    drop(held);
}
