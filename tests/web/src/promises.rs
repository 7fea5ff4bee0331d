//! What every framework's site is asked.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LockStatus};
use distlock_testkit::{HttpClient, HttpResponse, Log, wait_for};
use tokio::task::JoinSet;

use crate::site::{BODY_TIMEOUT, BRIEF, Site, TTL};

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
fn is_problem(response: &HttpResponse, status: u16, title: &str, code: &str) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{response:?}");
    let beginning =
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":""#);
    let end = format!(r#"","code":"{code}"}}"#);
    assert!(response.body.starts_with(&beginning) && response.body.ends_with(&end), "{response:?}");
    let all = format!("{response:?}");
    for secret in [WHO, "alice", "item:"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}

#[track_caller]
fn is_unavailable(response: &HttpResponse) {
    is_problem(response, 503, "Service Unavailable", "lock-store-unavailable");
    assert!((1..=2).contains(&retry_after(response)), "{response:?}");
}

#[track_caller]
fn is_misconfigured(response: &HttpResponse) {
    is_problem(response, 500, "Internal Server Error", "lock-misconfigured");
}

/// The lease would run for another ten minutes, and its holder is done at any moment.
#[track_caller]
fn is_busy(response: &HttpResponse) {
    is_problem(response, 423, "Locked", "lock-busy");
    assert!((1..=2).contains(&retry_after(response)), "{response:?}");
}

#[track_caller]
fn retry_after(response: &HttpResponse) -> u64 {
    let seconds = response.header("retry-after").and_then(|after| after.parse().ok());
    seconds.unwrap_or_else(|| panic!("no Retry-After: {response:?}"))
}

/// 423 with `Retry-After` for every way, at once where nothing waits and after its `wait` otherwise.
/// Fault: WM1.
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
        // Or the lock would be kept for a client that has just left.
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
/// Fault: WM1.
pub async fn a_store_that_is_gone_is_503(mut site: Site) {
    let log = Log::start_of("distlock");
    let ways = ["layer", "locked", "attribute"].map(|way| format!("/{way}/{WHO}/brief"));
    for path in &ways {
        assert_eq!(site.post(path).await.status, 200, "{path}");
    }
    site.redis.kill9();
    for path in &ways {
        let gone = site.post(path).await;
        is_unavailable(&gone);
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
    is_misconfigured(&site.post(&format!("/missing/{WHO}")).await);
    let words = ["status=500", "no path parameter `item`", "it has `thing`"];
    assert!(log.says("ERROR", &words), "{}", log.text());
    is_misconfigured(&site.post("/missing").await);
    assert!(log.says("ERROR", &["no path parameter `item`", "it has none"]), "{}", log.text());
    assert_eq!(site.work.value(), 0, "a handler ran without its lock");
}

/// A layer that was set up wrongly never runs a handler, and the log says how to fix it.
pub async fn a_missing_key_is_named_in_the_log(site: Site) {
    let log = Log::start_of("distlock");
    is_misconfigured(&site.post("/keyless").await);
    assert!(log.says("ERROR", &["keys: none", "name at least one"]), "{}", log.text());
    assert_eq!(site.work.value(), 0, "a handler ran without its lock");
}

/// An item that makes no key: the client's mistake.
pub async fn a_key_too_long_is_400(site: Site) {
    let long = "x".repeat(5000);
    for way in ["layer", "locked", "attribute"] {
        let refused = site.post(&format!("/{way}/{long}/hold")).await;
        is_problem(&refused, 400, "Bad Request", "lock-invalid-key");
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
        is_problem(&lost, 500, "Internal Server Error", "lock-lost");
        assert_eq!(site.work.ended.load(SeqCst), n as u32 + 1, "{way}: the handler lives on");
    }
    assert_eq!(site.work.finished.load(SeqCst), 0, "a handler ran on without its lock");
    site.nothing_is_locked().await;
}

/// The attribute inside a layer with the same key fails at once, and does not wait for itself.
pub async fn the_attribute_inside_a_layer_is_nested(site: Site) {
    let log = Log::start_of("distlock");
    let start = Instant::now();
    let nested = site.post("/layer/7/nested").await;
    is_problem(&nested, 500, "Internal Server Error", "lock-would-deadlock");
    assert!(start.elapsed() < BRIEF * 30, "it waited for itself");
    assert!(log.says("ERROR", &["already held by the caller"]), "{}", log.text());
    site.nothing_is_locked().await;
}

/// Behind a layer the lock ends with the handler: it is free while the body is still being sent.
pub async fn a_body_streams_after_the_layers_lock(site: Site) {
    let mut client = site.begin("/layer/7/stream").await;
    let head = client.head().await.expect("an answer");
    assert_eq!(head.status, 200);
    // No waiting: a client that has the head finds the lock free.
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

/// However a path spells a number or a UUID, it is one lock.
pub async fn f9_a_value_is_one_lock_however_it_is_spelt(site: Site) {
    const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let order = site.begin("/typed/7/hold").await;
    site.work.wait_until_begun(1).await;
    let job = site.begin(&format!("/uuid/{ID}/hold")).await;
    site.work.wait_until_begun(2).await;
    let keys =
        ["distlock:lock:{job:67e55044-10b1-426f-9247-bb680e5fe0c8}", "distlock:lock:{order:7}"];
    let mut stored = site.redis.lock_keys();
    stored.sort();
    assert_eq!(stored, keys);
    for spelling in ["7", "07", "+7", "%2B7", "%37", "0000000007"] {
        is_busy(&site.post(&format!("/typed/{spelling}/hold")).await);
    }
    for spelling in [
        "67E55044-10B1-426F-9247-BB680E5FE0C8",
        "67e5504410b1426f9247bb680e5fe0c8",
        "%7B67e55044-10b1-426f-9247-bb680e5fe0c8%7D",
        "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
    ] {
        is_busy(&site.post(&format!("/uuid/{spelling}/hold")).await);
    }
    assert_eq!(site.work.begun.load(SeqCst), 2, "a handler ran without its lock");
    for client in [order, job] {
        finish(&site, client).await;
    }
}

/// A layer and the attribute exclude each other, also where the path is spelt otherwise.
pub async fn wh2_a_layer_and_the_attribute_mean_the_same_number(site: Site) {
    let client = site.begin("/typed/07/hold").await;
    site.work.wait_until_begun(1).await;
    is_busy(&site.post("/typed/7/attribute").await);
    is_busy(&site.post("/typed/+7/attribute").await);
    finish(&site, client).await;
    site.nothing_is_locked().await;
}

/// What is no number is refused, and its handler does not run without a lock.
pub async fn wh2_what_is_not_of_its_type_is_400(site: Site) {
    for path in
        ["/typed/x/hold", "/typed/-7/hold", "/typed/18446744073709551616/hold", "/uuid/7/hold"]
    {
        let refused = site.post(path).await;
        is_problem(&refused, 400, "Bad Request", "lock-invalid-key");
    }
    assert_eq!(site.work.begun.load(SeqCst), 0, "a handler ran without its lock");
}

/// A client that announces a body and does not send it is answered, and its lock is free.
pub async fn f10_a_body_that_does_not_come_frees_the_lock(site: Site) {
    let mut slow = HttpClient::connect(site.addr).await.expect("connect");
    slow.send_beginning("/late/7/work", 1000, "x").await.expect("sent");
    let mut late = slow.head().await.expect("an answer");
    late.body = slow.chunk(&late).await.expect("a body").unwrap_or_default();
    is_problem(&late, 408, "Request Timeout", "lock-body-timeout");
    // No waiting: a client that has the answer finds the lock free.
    assert_eq!(site.redis.lock_keys(), Vec::<String>::new());
    let mut other = HttpClient::connect(site.addr).await.expect("connect");
    let answer = other.request("POST", "/late/7/body", "all of it").await.expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (200, "9 bytes"));
    assert_eq!(site.work.begun.load(SeqCst), 0, "a handler ran without its body");
}

/// A handler has as long as it likes once it has its body.
pub async fn wh3_a_body_that_has_come_is_no_matter(site: Site) {
    let mut client = HttpClient::connect(site.addr).await.expect("connect");
    client.send("POST", "/late/7/work", "all of it").await.expect("sent");
    site.work.wait_until_begun(1).await;
    tokio::time::sleep(BODY_TIMEOUT * 3 / 2).await;
    finish(&site, client).await;
    let mut client = HttpClient::connect(site.addr).await.expect("connect");
    client.send_beginning("/late/7/work", 2, "a").await.expect("sent");
    client.send_more("b").await.expect("sent");
    site.work.wait_until_begun(2).await;
    tokio::time::sleep(BODY_TIMEOUT * 3 / 2).await;
    finish(&site, client).await;
}

/// A handler that does not read is not hurried.
pub async fn wh3_a_body_that_nobody_reads_is_no_matter(site: Site) {
    let mut client = HttpClient::connect(site.addr).await.expect("connect");
    client.send_beginning("/late/7/unread", 1000, "x").await.expect("sent");
    site.work.wait_until_begun(1).await;
    tokio::time::sleep(BODY_TIMEOUT * 3 / 2).await;
    finish(&site, client).await;
}

/// What a handler does between two pieces of a body is not the client's time, and a handler that has
/// what it wants of one need not read to its end.
pub async fn wh3_a_body_that_is_worked_on_piece_by_piece_is_no_matter(site: Site) {
    let mut client = HttpClient::connect(site.addr).await.expect("connect");
    client.send_beginning("/late/7/pieces", 3, "").await.expect("sent");
    wait_for("it is locked", async || !site.redis.lock_keys().is_empty()).await;
    // Most often long enough for the handler to have to wait for the first piece.
    tokio::time::sleep(BRIEF).await;
    for (piece, begun) in [("a", 1), ("b", 2)] {
        client.send_more(piece).await.expect("sent");
        site.work.wait_until_begun(begun).await;
        tokio::time::sleep(BODY_TIMEOUT).await;
        site.work.go.add_permits(1);
    }
    client.send_more("c").await.expect("sent");
    site.work.wait_until_begun(3).await;
    finish(&site, client).await;
    site.nothing_is_locked().await;
}

/// A task that reads the body beside the handler gets an error, and the handler is dropped.
pub async fn wh3_a_body_read_in_another_task_is_bounded(site: Site) {
    let mut slow = HttpClient::connect(site.addr).await.expect("connect");
    slow.send_beginning("/late/7/spawned", 1000, "x").await.expect("sent");
    assert_eq!(slow.head().await.expect("an answer").status, 408);
    assert_eq!(site.work.ended.load(SeqCst), 1, "the handler lives on");
    wait_for("the reader is told", async || site.work.unread.load(SeqCst) == 1).await;
    site.nothing_is_locked().await;
}

/// `Option<Locked<K>>` is a try.
pub async fn wh5_an_optional_lock_is_a_try(site: Site) {
    assert_eq!(site.post("/locked/7/perhaps").await.body, "locked");
    site.nothing_is_locked().await;
    let client = site.begin("/locked/7/hold").await;
    site.work.wait_until_begun(1).await;
    assert_eq!(site.post("/locked/7/perhaps").await.body, "not locked");
    finish(&site, client).await;
}

/// An extractor may wait although its manager does not.
pub async fn wh5_an_extractor_has_options_of_its_own(site: Site) {
    let client = site.begin("/locked/7/hold").await;
    site.work.wait_until_begun(1).await;
    let mut patient = site.begin("/locked/7/patient").await;
    wait_for("somebody waits", async || {
        let status = site.work.hasty.inspect("item:7").await.expect("the store answers");
        matches!(status, LockStatus::Held { waiting: 1, .. })
    })
    .await;
    finish(&site, client).await;
    assert_eq!(patient.head().await.expect("an answer").status, 200);
}

/// Readers hold a lock together, whatever takes it for them, and keep a writer out.
pub async fn readers_are_served_together(site: Site) {
    let mut readers = Vec::new();
    for (path, begun) in [("layer", 1), ("locked", 2), ("attribute", 3), ("layer", 4)] {
        readers.push(site.begin(&format!("/shared/7/{path}")).await);
        site.work.wait_until_begun(begun).await;
    }
    is_busy(&site.post("/layer/7/hold").await);
    for reader in readers {
        is_busy(&site.post("/attribute/7/brief").await);
        finish(&site, reader).await;
    }
    site.nothing_is_locked().await;
    let writer = site.begin("/layer/7/hold").await;
    site.work.wait_until_begun(5).await;
    for path in ["layer", "locked", "attribute"] {
        is_busy(&site.post(&format!("/shared/7/{path}")).await);
    }
    finish(&site, writer).await;
    site.nothing_is_locked().await;
}

/// As many requests are served at once as there are permits.
pub async fn permits_are_as_many_as_the_layer_says(site: Site) {
    let one = site.begin("/shared/7/permit").await;
    site.work.wait_until_begun(1).await;
    let other = site.begin("/shared/7/locked_permit").await;
    site.work.wait_until_begun(2).await;
    is_busy(&site.post("/shared/7/permit").await);
    is_busy(&site.post("/shared/7/locked_permit").await);
    finish(&site, one).await;
    let third = site.begin("/shared/7/permit").await;
    site.work.wait_until_begun(3).await;
    is_busy(&site.post("/shared/7/permit").await);
    finish(&site, other).await;
    finish(&site, third).await;
    site.nothing_is_locked().await;
}

/// What cannot be meant is answered with 500, and the log says what to do.
pub async fn permits_and_a_mode_are_a_mistake(site: Site) {
    let log = Log::start_of("distlock");
    is_misconfigured(&site.post("/shared/7/both").await);
    assert!(log.text().contains("not together with mode"), "{}", log.text());
    assert_eq!(site.work.begun.load(SeqCst), 0, "a handler ran without its lock");
}

/// Where there is no manager no other one is taken in its place.
pub async fn wh5_without_a_manager_nobody_is_locked_by_another(site: Site) {
    let log = Log::start_of("distlock");
    is_misconfigured(&site.post("/unmanaged/7").await);
    let text = log.text();
    let named = ["web::Data::new(manager)", "distlock::init("];
    assert!(named.iter().any(|mend| text.contains(mend)), "{text}");
}

/// `Retry-After` is short, or what a layer says, and not the same for all clients.
pub async fn wl1_clients_are_sent_back_at_different_times(site: Site) {
    let client = site.begin("/own/7/hold").await;
    site.work.wait_until_begun(1).await;
    let mut drawn = Vec::new();
    for _ in 0..20 {
        drawn.push(retry_after(&site.post("/own/7/hold").await));
    }
    let half = TTL.as_secs() / 2;
    assert!(drawn.iter().all(|seconds| (half..=3 * half).contains(seconds)), "{drawn:?}");
    drawn.dedup();
    assert!(drawn.len() > 1, "all the same: {drawn:?}");
    finish(&site, client).await;
}

/// A path that leads nowhere stays a 404, takes no lock, and is not reported as a mistake.
pub async fn wm3_a_path_without_a_route_stays_404(site: Site) {
    let log = Log::start_of("distlock");
    for path in ["/lost", "/lost/7/leads/nowhere", "/lost/7/8"] {
        let nothing = site.post(path).await;
        assert_eq!(nothing.status, 404, "{nothing:?}");
    }
    assert_eq!(site.post("/lost/7").await.status, 200);
    assert_eq!(log.events("name=\"lost\""), [""; 0]);
}

/// A mistake is logged with the place of the layer that made it.
pub async fn wm3_a_mistake_is_logged_with_its_layer(site: Site) {
    let log = Log::start_of("distlock");
    is_misconfigured(&site.post("/missing").await);
    let place = "name=\"tests/web/src/site/";
    assert!(log.says("ERROR", &[place, ".rs:", "no path parameter"]), "{}", log.text());
    let client = site.begin("/layer/7/hold").await;
    site.work.wait_until_begun(1).await;
    is_busy(&site.post("/layer/7/hold").await);
    assert!(log.says("DEBUG", &[place, ".rs:", "of tests/web/src/site/"]), "{}", log.text());
    assert!(!log.text().contains("of at"), "{}", log.text());
    finish(&site, client).await;
}

/// A layer may have a status of its own for a lock that is held.
pub async fn wm5_a_layer_has_a_busy_status_of_its_own(site: Site) {
    let client = site.begin("/own/7/hold").await;
    site.work.wait_until_begun(1).await;
    let busy = site.post("/own/7/hold").await;
    is_problem(&busy, 409, "Conflict", "lock-busy");
    finish(&site, client).await;
}

/// No client learns what the server calls its locks, where in its code they are, how long they are held, or where
/// the store is.
pub async fn fw5_no_client_is_told_the_lock_its_lease_or_its_store(mut site: Site) {
    let client = site.begin(&format!("/own/{WHO}/hold")).await;
    site.work.wait_until_begun(1).await;
    let busy = site.post(&format!("/own/{WHO}/hold")).await;
    is_problem(&busy, 409, "Conflict", "lock-busy");
    let said = r#""detail":"Another request is at work on this. Try again later.""#;
    assert!(busy.body.contains(said), "{busy:?}");
    finish(&site, client).await;
    let port = site.redis.addr().port().to_string();
    site.redis.kill9();
    let gone = site.post(&format!("/own/{WHO}/hold")).await;
    is_problem(&gone, 503, "Service Unavailable", "lock-store-unavailable");
    assert!(!gone.body.contains(&port), "{gone:?}");
}

/// A layer outside of the lock's finds the error.
pub async fn wm5_the_error_is_in_the_responses_extensions(site: Site) {
    let client = site.begin("/own/7/hold").await;
    site.work.wait_until_begun(1).await;
    for way in ["hold", "attribute", "fail"] {
        let busy = site.post(&format!("/own/7/{way}")).await;
        assert_eq!(busy.header("x-lock-error"), Some("lock-busy"), "{way}: {busy:?}");
    }
    let fine = site.post("/own/8/token").await;
    assert_eq!(fine.header("x-lock-error"), None, "{fine:?}");
    finish(&site, client).await;
}

/// `on_fail` answers, also when the lease is lost.
pub async fn wm5_on_fail_answers(site: Site) {
    let mut client = site.begin("/own/7/fail").await;
    site.work.wait_until_begun(1).await;
    let busy = site.post("/own/7/fail").await;
    assert_eq!((busy.status, busy.body.as_str()), (202, "later: lock-busy"));
    site.work.hasty.force_release("item:7").await.expect("the store answers");
    let mut lost = client.head().await.expect("an answer");
    lost.body = client.chunk(&lost).await.expect("a body").unwrap_or_default();
    assert_eq!((lost.status, lost.body.as_str()), (202, "later: lock-lost"));
    assert_eq!(site.work.finished.load(SeqCst), 0, "a handler ran on without its lock");
}

/// A `key_fn` may refuse a request.
pub async fn wm5_a_key_function_may_answer(site: Site) {
    let refused = site.post("/own/keyed").await;
    assert_eq!((refused.status, refused.body.as_str()), (400, "no Idempotency-Key"));
    let connect = async || {
        let client = HttpClient::connect(site.addr).await.expect("connect");
        client.with_header("idempotency-key", "abc")
    };
    let mut client = connect().await;
    client.send("POST", "/own/keyed", "").await.expect("sent");
    site.work.wait_until_begun(1).await;
    is_busy(&connect().await.request("POST", "/own/keyed", "").await.expect("an answer"));
    finish(&site, client).await;
}

/// Several keys at once, and a prefix.
pub async fn wm5_a_layer_takes_several_locks_and_a_prefix(site: Site) {
    let two = site.begin("/own/b/with/a").await;
    site.work.wait_until_begun(1).await;
    let other = site.begin("/own/b/prefix").await;
    site.work.wait_until_begun(2).await;
    let mut keys = site.redis.lock_keys();
    keys.sort();
    let expected = ["distlock:lock:{item:a}", "distlock:lock:{item:b}", "other:lock:{item:b}"];
    assert_eq!(keys, expected);
    is_busy(&site.post("/layer/a/hold").await);
    is_busy(&site.post("/own/c/with/b").await);
    finish(&site, two).await;
    finish(&site, other).await;
}

/// The handler finds the fencing token of its layer's lock, and it grows.
pub async fn wm5_the_fencing_token_is_in_the_requests_extensions(site: Site) {
    let token = async || {
        let answer = site.post("/own/7/token").await;
        answer.body.parse::<u64>().unwrap_or_else(|_| panic!("no token: {answer:?}"))
    };
    let first = token().await;
    assert!(token().await > first);
}

/// An error type that takes all errors still answers with the lock's.
pub async fn wm6_an_error_of_any_kind_still_answers_423(site: Site) {
    let client = site.begin("/layer/7/hold").await;
    site.work.wait_until_begun(1).await;
    is_busy(&site.post("/own/7/any").await);
    finish(&site, client).await;
}

/// An outage is one line a second, which says how many answers it stands for.
pub async fn wl2_an_outage_does_not_fill_the_log(mut site: Site) {
    let log = Log::start_of("distlock");
    assert_eq!(log.events("name=\"outage\""), [""; 0], "another test uses the name");
    site.redis.kill9();
    let start = Instant::now();
    // Each answer takes the time that one to the store may take.
    let post = || site.post("/own/7/outage");
    for _ in 0..4 {
        let (a, b, c, d, e) = tokio::join!(post(), post(), post(), post(), post());
        [a, b, c, d, e].iter().for_each(is_unavailable);
    }
    let lines = log.events("name=\"outage\"");
    let most = start.elapsed().as_secs() as usize + 1;
    assert!((1..=most).contains(&lines.len()), "{most} at most: {lines:#?}");
    let counted = |line: &String| line.starts_with("ERROR") && line.contains("count=");
    assert!(lines.iter().all(counted), "{lines:#?}");
}

/// A body that trickles in is as late as one that does not come.
pub async fn wh3_a_body_that_trickles_in_is_bounded(site: Site) {
    let start = Instant::now();
    let mut slow = HttpClient::connect(site.addr).await.expect("connect");
    slow.send_beginning("/late/7/work", 100_000, "x").await.expect("sent");
    // A client that has been answered is cut off.
    wait_for("it is cut off", async || slow.send_more("x").await.is_err()).await;
    assert!(start.elapsed() >= BODY_TIMEOUT, "after {:?}", start.elapsed());
    site.nothing_is_locked().await;
    assert_eq!(site.work.begun.load(SeqCst), 0, "a handler ran without its body");
}

/// The manager's `retry_after` is what clients get, whatever the lease says, also in answers of the
/// application's own.
pub async fn wm1_retry_after_is_the_managers(site: Site) {
    let builder = LockManager::builder().url(site.redis.url()).ttl(TTL);
    let manager = builder.retry_after(Duration::from_secs(20)).build().expect("good options");
    let held = site.work.patient.lock("one").acquire().await.expect("free");
    let error = manager.lock("one").acquire().await.expect_err("held elsewhere");
    let told = |error: LockError| {
        assert!(error.http_retry_after().is_some_and(|seconds| (10..=30).contains(&seconds)));
        let actix = actix_web::ResponseError::error_response(&error);
        let actix = actix.headers().get("retry-after").and_then(|after| after.to_str().ok());
        let axum = axum::response::IntoResponse::into_response(error.clone());
        let axum = axum.headers().get("retry-after").and_then(|after| after.to_str().ok());
        [actix, axum].map(|after| after.and_then(|after| after.parse::<u64>().ok()))
    };
    let is_the_managers =
        |after: &Option<u64>| after.is_some_and(|seconds| (10..=30).contains(&seconds));
    assert!(told(error).iter().all(is_the_managers));
    held.release().await.expect("freed");
    manager.close(Duration::ZERO).await;
    let closed = manager.lock("one").acquire().await.expect_err("closed");
    assert!(closed.http_retry_after().is_some(), "{closed}");
}
