//! What every framework's site is asked.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use distlock::LockManager;
use distlock_testkit::{HttpClient, HttpResponse, Log, wait_for};
use tokio::task::JoinSet;

use crate::site::{BRIEF, Site, TTL};

/// One test for each promise, for a site that `$serve` serves.
#[macro_export]
macro_rules! promises {
    ($serve:expr; $($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::promises::$name($crate::site::Site::start($serve).await).await;
        }
    )*};
}

const ADDITIONS: u64 = 24;
/// In a path, and never in an answer or in the log.
const WHO: &str = "alice@example.org";

/// Adds many times at once, over these ways; returns what came of it.
async fn add_everywhere(site: &Site, ways: &[&str]) -> u64 {
    let mut requests = JoinSet::new();
    for n in 0..ADDITIONS {
        let (addr, way) = (site.addr, ways[n as usize % ways.len()]);
        let path = format!("/{way}/7/add");
        requests.spawn(async move { HttpClient::once(addr, "POST", &path).await });
    }
    while let Some(response) = requests.join_next().await {
        let response = response.expect("no panic").expect("an answer");
        assert_eq!(response.status, 200, "{response:?}");
    }
    site.work.value()
}

/// Without a lock additions are lost: the others would be red if their lock did nothing.
pub async fn without_a_lock_additions_are_lost(site: Site) {
    assert!(add_everywhere(&site, &["bare"]).await < ADDITIONS);
}

/// A layer or middleware excludes.
pub async fn a_layer_excludes(site: Site) {
    assert_eq!(add_everywhere(&site, &["layer"]).await, ADDITIONS);
    site.nothing_is_locked().await;
}

/// So does one with a `key_fn`.
pub async fn a_key_function_excludes(site: Site) {
    assert_eq!(add_everywhere(&site, &["fn"]).await, ADDITIONS);
    site.nothing_is_locked().await;
}

/// So does the extractor.
pub async fn the_extractor_excludes(site: Site) {
    assert_eq!(add_everywhere(&site, &["locked"]).await, ADDITIONS);
    site.nothing_is_locked().await;
}

/// So does the attribute.
pub async fn the_attribute_excludes(site: Site) {
    assert_eq!(add_everywhere(&site, &["attribute"]).await, ADDITIONS);
    site.nothing_is_locked().await;
}

/// The same path makes the same key in all of them.
pub async fn all_of_them_exclude_each_other(site: Site) {
    let ways = ["layer", "fn", "locked", "attribute"];
    assert_eq!(add_everywhere(&site, &ways).await, ADDITIONS);
    site.nothing_is_locked().await;
}

/// Values are decoded from the path and encoded into the key as in every template.
pub async fn path_parameters_are_encoded(site: Site) {
    let client = site.begin("/layer/a%3Ab%20%25%7B%C3%A4%2F/hold").await;
    site.work.wait_until_begun(1).await;
    assert_eq!(site.redis.lock_keys(), ["distlock:lock:{item:a%3Ab %25%7Bä/}"]);
    let busy = site.post("/attribute/a%3Ab%20%25%7B%C3%A4%2F/brief").await;
    assert_eq!(busy.status, 423, "another key in the attribute: {busy:?}");
    finish(&site, client).await;
    site.nothing_is_locked().await;
}

/// Parameters of a scope around the route count as well.
pub async fn parameters_of_nested_routes_count(site: Site) {
    let client = site.begin("/outer/x-y/inner/z").await;
    site.work.wait_until_begun(1).await;
    assert_eq!(site.redis.lock_keys(), ["distlock:lock:{x%2Dy-z}"]);
    is_busy(&site.post("/outer/x-y/inner/z").await);
    let other = site.begin("/outer/x/inner/y-z").await;
    site.work.wait_until_begun(2).await;
    finish(&site, client).await;
    finish(&site, other).await;
    site.nothing_is_locked().await;
}

/// A handler that panics leaves no lock behind.
pub async fn a_panic_leaves_no_lock(site: Site) {
    let mut client = site.begin("/layer/7/panic").await;
    assert!(client.head().await.is_err(), "an answer from a handler that panicked");
    site.nothing_is_locked().await;
    assert_eq!(site.post("/layer/7/add").await.status, 200);
}

/// Lets one handler return, and reads its answer.
async fn finish(site: &Site, mut client: HttpClient) -> HttpResponse {
    site.work.go.add_permits(1);
    let head = client.head().await.expect("an answer");
    assert_eq!(head.status, 200, "{head:?}");
    head
}

#[track_caller]
fn is_problem(response: &HttpResponse, status: u16, title: &str) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{response:?}");
    let beginning =
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":""#);
    assert!(
        response.body.starts_with(&beginning) && response.body.ends_with("\"}"),
        "{response:?}"
    );
    let all = format!("{response:?}");
    for secret in [WHO, "alice", "item:"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}

#[track_caller]
fn is_busy(response: &HttpResponse) {
    is_problem(response, 423, "Locked");
    let seconds = response.header("retry-after").and_then(|after| after.parse().ok());
    assert!(seconds.is_some_and(|after: u64| (1..=TTL.as_secs()).contains(&after)), "{response:?}");
}

/// 423 with `Retry-After` for every way, at once where nothing waits and after its `wait` otherwise.
pub async fn a_lock_held_elsewhere_is_423(site: Site) {
    let log = Log::start_of("distlock");
    for (n, holder) in ["layer", "fn", "locked", "attribute"].iter().enumerate() {
        let client = site.begin(&format!("/{holder}/{WHO}/hold")).await;
        site.work.wait_until_begun(n as u32 + 1).await;
        for way in ["layer", "locked", "attribute"] {
            is_busy(&site.post(&format!("/{way}/{WHO}/hold")).await);
        }
        for way in ["brief", "own"] {
            is_busy(&site.post(&format!("/attribute/{WHO}/{way}")).await);
        }
        let start = Instant::now();
        is_busy(&site.post(&format!("/layer/{WHO}/brief")).await);
        assert!(start.elapsed() >= BRIEF, "after {:?}", start.elapsed());
        // Or the lock would be kept for who has just left.
        wait_for("nobody stands in line", async || site.redis.lock_keys().len() == 1).await;
        finish(&site, client).await;
    }
    assert_eq!(site.work.begun.load(SeqCst), 4, "a handler ran without its lock");
    assert!(!log.text().contains(WHO), "a key in the log");
}

/// A request that `key_fn` gives no key is not locked.
pub async fn no_key_no_lock(site: Site) {
    let client = site.begin("/fn/7/hold").await;
    site.work.wait_until_begun(1).await;
    let other = HttpClient::once(site.addr, "GET", "/fn/7/add").await.expect("an answer");
    assert_eq!(other.status, 200, "{other:?}");
    finish(&site, client).await;
}

/// 503 while the store is gone, and 200 again when it is back.
pub async fn a_store_that_is_gone_is_503(mut site: Site) {
    let log = Log::start_of("distlock");
    let ways = ["layer", "locked", "attribute"].map(|way| format!("/{way}/{WHO}/brief"));
    for path in &ways {
        assert_eq!(site.post(path).await.status, 200, "{path}");
    }
    site.redis.kill9();
    for path in &ways {
        let gone = site.post(path).await;
        is_problem(&gone, 503, "Service Unavailable");
    }
    assert!(log.says("ERROR", &["answered", "status=503"]), "{}", log.text());
    site.redis.restart();
    for path in &ways {
        wait_for("the service is back", async || site.post(path).await.status == 200).await;
    }
    site.nothing_is_locked().await;
}

/// A route without the parameter is a 500 whose log names it, and no handler runs.
pub async fn a_missing_path_parameter_is_named_in_the_log(site: Site) {
    let log = Log::start_of("distlock");
    is_problem(&site.post(&format!("/missing/{WHO}")).await, 500, "Internal Server Error");
    let words = ["status=500", "no path parameter `item`", "it has `thing`"];
    assert!(log.says("ERROR", &words), "{}", log.text());
    is_problem(&site.post("/missing").await, 500, "Internal Server Error");
    assert!(log.says("ERROR", &["no path parameter `item`", "it has none"]), "{}", log.text());
    assert_eq!(site.work.value(), 0, "a handler ran without its lock");
}

/// A layer that was set up wrongly never runs a handler, and says in the log what to mend.
pub async fn a_bad_template_is_named_in_the_log(site: Site) {
    let log = Log::start_of("distlock");
    is_problem(&site.post("/broken/7").await, 500, "Internal Server Error");
    let words = ["\"item:{item\\\" cannot be used", "write `{{`"];
    let found = log.text().contains("item:{item") && log.says("ERROR", &words[1..]);
    assert!(found, "{}", log.text());
    is_problem(&site.post("/keyless").await, 500, "Internal Server Error");
    assert!(log.says("ERROR", &["key: missing", ".key_fn("]), "{}", log.text());
    assert_eq!(site.work.value(), 0, "a handler ran without its lock");
}

/// An item that makes no key: the client's mistake.
pub async fn a_key_too_long_is_400(site: Site) {
    let long = "x".repeat(5000);
    for way in ["layer", "locked", "attribute"] {
        let refused = site.post(&format!("/{way}/{long}/hold")).await;
        is_problem(&refused, 400, "Bad Request");
        assert!(!refused.body.contains("xxx"));
    }
}

/// A handler whose lease is taken away is not polled again, and its client gets a 500. The extractor
/// cannot stop a handler.
pub async fn a_lost_lease_stops_the_handler(site: Site) {
    for (n, way) in ["layer", "fn", "attribute"].iter().enumerate() {
        let mut client = site.begin(&format!("/{way}/{WHO}/hold")).await;
        site.work.wait_until_begun(n as u32 + 1).await;
        let operator = if *way == "fn" { &site.work.patient } else { &site.work.hasty };
        operator.force_release(format!("item:{WHO}")).await.expect("the store answers");
        let mut lost = client.head().await.expect("an answer");
        lost.body = client.chunk(&lost).await.expect("a body").unwrap_or_default();
        is_problem(&lost, 500, "Internal Server Error");
        assert_eq!(site.work.ended.load(SeqCst), n as u32 + 1, "{way}: the handler lives on");
    }
    assert_eq!(site.work.finished.load(SeqCst), 0, "a handler ran on without its lock");
    site.nothing_is_locked().await;
}

/// The attribute inside a layer with the same key is told at once, and does not wait for itself.
pub async fn the_attribute_inside_a_layer_is_nested(site: Site) {
    let log = Log::start_of("distlock");
    let start = Instant::now();
    is_problem(&site.post("/layer/7/nested").await, 500, "Internal Server Error");
    assert!(start.elapsed() < BRIEF * 30, "it waited for itself");
    assert!(log.says("ERROR", &["already held by the caller"]), "{}", log.text());
    site.nothing_is_locked().await;
}

/// Behind a layer the lock ends with the handler: it is free while the body is still being sent.
pub async fn a_body_streams_after_the_layers_lock(site: Site) {
    let mut client = site.begin("/layer/7/stream").await;
    let head = client.head().await.expect("an answer");
    assert_eq!(head.status, 200);
    // No waiting: whoever has the head finds the lock free.
    assert_eq!(site.redis.lock_keys(), Vec::<String>::new());
    assert_eq!(site.post("/layer/7/brief").await.status, 200);
    site.work.go.add_permits(3);
    for _ in 0..3 {
        assert_eq!(client.chunk(&head).await.expect("a piece").as_deref(), Some("piece "));
    }
    assert_eq!(client.chunk(&head).await.expect("the end"), None);
}

/// A lock that was moved into the body lasts until the body has ended.
pub async fn a_lock_in_the_body_lasts_as_long(site: Site) {
    let mut client = site.begin("/locked/7/stream").await;
    let head = client.head().await.expect("an answer");
    for _ in 0..3 {
        is_busy(&site.post("/attribute/7/brief").await);
        site.work.go.add_permits(1);
        assert_eq!(client.chunk(&head).await.expect("a piece").as_deref(), Some("piece "));
    }
    assert_eq!(client.chunk(&head).await.expect("the end"), None);
    site.nothing_is_locked().await;
    assert_eq!(site.post("/attribute/7/brief").await.status, 200);
}

/// And no longer than the client.
pub async fn a_lock_in_the_body_of_a_client_that_is_gone_is_freed(site: Site) {
    let mut client = site.begin("/locked/7/stream").await;
    let head = client.head().await.expect("an answer");
    site.work.go.add_permits(1);
    client.chunk(&head).await.expect("a piece");
    is_busy(&site.post("/attribute/7/brief").await);
    drop(client);
    // A server may learn of it only when it sends something.
    site.work.go.add_permits(2);
    site.nothing_is_locked().await;
}

/// When the client disconnects the handler is dropped, and then the lock is freed.
pub async fn a_client_that_is_gone_leaves_no_lock(site: Site) {
    for (n, way) in ["layer", "fn", "locked", "attribute"].iter().enumerate() {
        let client = site.begin(&format!("/{way}/7/hold")).await;
        site.work.wait_until_begun(n as u32 + 1).await;
        assert_eq!(site.redis.lock_keys().len(), 1, "{way}: not locked");
        drop(client);
        site.nothing_is_locked().await;
        assert_eq!(site.work.ended.load(SeqCst), n as u32 + 1, "{way}: freed under the handler");
    }
    assert_eq!(site.work.finished.load(SeqCst), 0);
}

/// The server lets the handler of a client that is gone run to its end, which is the lock's.
pub async fn a_client_that_is_gone_leaves_no_lock_after_its_handler(site: Site) {
    for (n, way) in ["layer", "fn", "locked", "attribute"].iter().enumerate() {
        let client = site.begin(&format!("/{way}/7/hold")).await;
        site.work.wait_until_begun(n as u32 + 1).await;
        drop(client);
        assert_eq!(site.redis.lock_keys().len(), 1, "{way}: freed under the handler");
        site.work.go.add_permits(1);
        site.nothing_is_locked().await;
        assert_eq!(site.work.finished.load(SeqCst), n as u32 + 1, "{way}");
    }
}

/// The manager's `busy_status` is the answer's.
pub async fn the_busy_status_is_the_managers(site: Site) {
    let builder = LockManager::builder().url(site.redis.url());
    for (status, title) in
        [(409, "Conflict"), (429, "Too Many Requests"), (503, "Service Unavailable")]
    {
        let manager = builder.clone().busy_status(status).build().expect("a good status");
        let held = site.work.patient.lock("one").acquire().await.expect("free");
        let error = manager.lock("one").acquire().await.expect_err("held elsewhere");
        let response = axum::response::IntoResponse::into_response(error);
        assert_eq!(response.status(), status, "{title}");
        assert!(response.headers().contains_key("retry-after"));
        let error = manager.lock("one").acquire().await.expect_err("held elsewhere");
        let response = actix_web::ResponseError::error_response(&error);
        assert_eq!(response.status().as_u16(), status, "{title}");
        assert!(response.headers().contains_key("retry-after"));
        held.release().await.expect("freed");
    }
}
