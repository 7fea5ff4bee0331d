//! What is special about locks in etcd; what they have in common with all others is in `conformance`.

use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockManager, LockMode};
use distlock_testkit::conformance::Subject as _;
use distlock_testkit::{
    EtcdServer, LONG, Mode, Proxy, SECOND, assert_busy, backend, connect, held, ms, no_key_is_left,
    patient, patient_builder, served, wait_for, waits, whole_text,
};
use tokio::time::{sleep, timeout};

/// One number of the server's metrics.
fn metric(server: &EtcdServer, name: &str) -> u64 {
    let metrics = server.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) as u64
}

async fn many_wait(manager: &LockManager, key: &str, many: usize) {
    use distlock::LockStatus::Held;
    wait_for(
        "they wait",
        async || matches!(manager.inspect(key).await, Ok(Held { waiting, .. }) if waiting == many),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_another_locks() {
    let server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut guards = Vec::new();
    for key in ["a", "a/b", "a%2Fb", "{a}", "{a}/b", "{a}0"] {
        guards.push(held(&one, key).await);
        assert_busy(other.lock(key).acquire().await);
    }
    assert_eq!(server.left().len(), guards.len());
    drop(guards);
    no_key_is_left(&server);
    let longest = "k".repeat(1900);
    held(&one, &longest).await.release().await.expect("it was held");
    let refused = one.lock("secret".repeat(400)).acquire().await;
    let text = whole_text(refused.as_ref().expect_err("it does not fit"));
    assert!(text.contains("2000") && !text.contains("secretsecret"), "{text}");
}

/// etcd counts in seconds, and not below two: its holder's end is the one that was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_shorter_than_etcds_ends_in_time_for_its_holder() {
    let server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let short = one.lock("k").ttl(ms(300)).renew(false).acquire().await.expect("it is free");
    assert!(short.remaining() <= ms(300));
    timeout(10 * SECOND, short.lost()).await.expect("it ends after 300 ms");
    let next = other.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("etcd's lease ends");
    assert!(next.fencing_token() > short.fencing_token());
    drop((short, next));
    // Renewed it lasts.
    let short = one.lock("k").ttl(ms(700)).acquire().await.expect("it is free");
    sleep(3 * SECOND).await;
    assert!(short.is_held());
    short.release().await.expect("it was held");
    no_key_is_left(&server);
}

/// The next lock takes a lease that is there, and one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_used_again() {
    let server = EtcdServer::start();
    let manager = connect(&server.url()).await;
    for _ in 0..50 {
        held(&manager, "k").await.release().await.expect("it was held");
    }
    let leases = server.ask("lease/leases", "{}").expect("the leases").matches("\"ID\"").count();
    // One more is that of the record of the process.
    assert!((1..=4).contains(&leases), "{leases} leases");
    no_key_is_left(&server);
}

/// A waiter that leaves wakes only the next one: the calls grow with the waiters, not with their square.
/// Fault: ET7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_wakes_the_next_one() {
    const WAITERS: usize = 24;
    const CALLS: &str = r#"grpc_server_handled_total{grpc_code="OK",grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#;
    let server = EtcdServer::start();
    let holder = connect(&server.url()).await;
    let guard = held(&holder, "k").await;
    let mut waiting = Vec::new();
    for n in 1..=WAITERS {
        let manager = patient(&server.url()).await;
        waiting.push((waits(&manager, "k"), manager));
        many_wait(&holder, "k", n).await;
    }
    let (before, began) = (metric(&server, CALLS), Instant::now());
    guard.release().await.expect("it was held");
    for (waiting, _) in &mut waiting {
        let guard = timeout(LONG, waiting).await.expect("served").expect("no panic");
        guard.expect("granted").release().await.expect("it was held");
    }
    let calls = metric(&server, CALLS) - before;
    // To see that it is its turn, to have its long lease, and to give it back; and looks every five seconds.
    let looks = WAITERS as u64 * (1 + began.elapsed().as_secs() / 4);
    assert!(calls <= 4 * WAITERS as u64 + looks, "{calls} calls for {WAITERS} waiters");
    no_key_is_left(&server);
}

/// A key that is deleted by hand is a lock that is lost, and its holder hears of it long before its next renewal.
/// Fault: ET2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_deleted_by_hand_is_a_lock_that_is_lost() {
    let server = EtcdServer::start();
    let manager = connect(&server.url()).await;
    let guard = held(&manager, "k").await;
    sleep(ms(200)).await;
    let key = server.left().pop().expect("a key");
    assert!(key.starts_with("distlock:lock:{k}/"), "{key}");
    server.delete(&key);
    timeout(20 * SECOND, guard.lost()).await.expect("it is told");
    drop(guard);
    held(&manager, "k").await.release().await.expect("it was held");
    no_key_is_left(&server);
}

/// A lease that an operator revokes takes the lock along.
/// Fault: ET1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_revoked_is_a_lock_that_is_lost() {
    let server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = one.lock("k").ttl(3 * SECOND).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    many_wait(&one, "k", 1).await;
    let leases = server.ask("lease/leases", "{}").expect("the leases");
    // All there are: the waiter's too, which takes its place again.
    for lease in leases.split("\"ID\":\"").skip(1) {
        let id = lease.split('"').next().expect("a number");
        server.ask("lease/revoke", &format!(r#"{{"ID":"{id}"}}"#)).expect("revoke");
    }
    timeout(20 * SECOND, guard.lost()).await.expect("it is told");
    let next = served(waiting).await;
    assert!(next.fencing_token() > guard.fencing_token());
    drop((guard, next));
    no_key_is_left(&server);
}

/// The server forgets the last revision seen, and a waiter is served all the same.
/// Fault: ET3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_while_somebody_waits_costs_no_turn() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.addr());
    let holder = connect(&server.url()).await;
    let waiter = connect(&server.url_at(proxy.addr())).await;
    let guard = held(&holder, "k").await;
    let waiting = waits(&waiter, "k");
    many_wait(&holder, "k", 1).await;
    for n in 0..3 {
        held(&holder, &format!("other {n}")).await.release().await.expect("it was held");
        server.compact();
        // Its watches end, and are made again behind the compaction.
        proxy.set(Mode::Reset);
        sleep(ms(100)).await;
        proxy.set(Mode::Pass);
    }
    guard.release().await.expect("it was held");
    timeout(LONG / 4, served(waiting)).await.expect("its turn comes").release().await.ok();
    no_key_is_left(&server);
}

/// A server that has lost its data gives the lock away, and the tokens grow.
/// Fault: ET4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_lost_data() {
    let mut server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut last = 0;
    for round in 0..3 {
        for manager in [&one, &other] {
            let request = manager.lock("k").ttl(SECOND).wait(LONG);
            let guard = request.acquire().await.expect("granted");
            assert!(guard.fencing_token() > last, "round {round}");
            last = guard.fencing_token();
            let _ = guard.release().await;
        }
        let lost = tokio::task::spawn_blocking(move || {
            server.restart_empty();
            server
        });
        server = lost.await.expect("no panic");
    }
}

/// A writer that goes on as a reader lets in the readers behind it, and keeps out writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_goes_on_as_a_reader() {
    let server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let third = connect(&server.url()).await;
    let writer = one.lock("k").mode(LockMode::Write).ttl(LONG).acquire().await.expect("free");
    let reads = other.lock("k").mode(LockMode::Read).ttl(LONG).wait(LONG).acquire();
    let reads = tokio::spawn(reads);
    many_wait(&one, "k", 1).await;
    let writes = waits(&third, "k");
    many_wait(&one, "k", 2).await;
    let written = writer.fencing_token();
    let reader = writer.downgrade().await.expect("it was held");
    assert!(reader.fencing_token() > written);
    let other_reader = served(reads).await;
    assert!(other_reader.is_held() && reader.is_held() && !writes.is_finished());
    let read = reader.fencing_token().max(other_reader.fencing_token());
    reader.release().await.expect("it was held");
    other_reader.release().await.expect("it was held");
    let writer = served(writes).await;
    assert!(writer.fencing_token() > read);
    writer.release().await.expect("it was held");
    no_key_is_left(&server);
}

/// A lock that is kept for its `min_hold` is free when that is over, also with others waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_kept_is_free_in_time() {
    let server = EtcdServer::start();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let began = Instant::now();
    let kept = one.lock("k").ttl(LONG).min_hold(3 * SECOND).acquire().await.expect("it is free");
    let waiting = waits(&other, "k");
    many_wait(&one, "k", 1).await;
    kept.release().await.expect("it was held");
    assert_busy(one.lock("k").acquire().await);
    let next = served(waiting).await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(2800) && took < 60 * SECOND, "{took:?}");
    next.release().await.expect("it was held");
    no_key_is_left(&server);
}

/// A member that is down is passed over.
/// Fault: ET5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_member_is_asked() {
    let server = EtcdServer::start();
    let url = format!("etcd://127.0.0.1:1,{}", server.addr());
    let manager = patient(&url).await;
    held(&manager, "k").await.release().await.expect("it was held");
    no_key_is_left(&server);
    let nobody = LockManager::builder().url("etcd://127.0.0.1:1").connect().await;
    assert_eq!(backend(nobody), BackendKind::Unreachable);
}

/// With users and passwords: a role needs the keys under the prefix, and no more.
/// Fault: ET6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_the_keys_under_the_prefix_and_no_more() {
    let server = EtcdServer::start();
    server.with_users();
    let url = |user: &str| format!("etcd://{user}{}", server.addr());
    let one = patient(&url("shop:hunter2%40@")).await;
    let other = patient(&url("shop:hunter2%40@")).await;
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    many_wait(&one, "k", 1).await;
    guard.release().await.expect("it was held");
    served(waiting).await.release().await.expect("it was held");

    let foreign = one.lock("k").prefix("other").acquire().await;
    assert_eq!(backend(foreign), BackendKind::Refused);
    for user in ["", "shop:wrong@", "nobody:hunter2%40@"] {
        let refused = patient_builder(&url(user)).connect().await;
        let text = whole_text(refused.as_ref().expect_err("it may not"));
        assert!(!text.contains("hunter2") && !text.contains("wrong"), "{text}");
        assert_eq!(backend(refused), BackendKind::Refused, "{text}");
    }
}

/// Users and passwords whose tokens end after three seconds without use, and a URL that has them.
fn with_short_tokens() -> (EtcdServer, String) {
    let server = EtcdServer::start_with(&["--auth-token-ttl=3"]);
    server.with_users();
    let url = format!("etcd://shop:hunter2%40@{}", server.addr());
    (server, url)
}

/// Longer than a token lasts that is not used, and shorter than the next look of a waiter or the next renewal.
const IDLE: Duration = Duration::from_millis(4500);

/// No failure of an expired token reaches a caller: each next kind of call is the first after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd4_an_expired_token_costs_no_call() {
    let (_server, url) = with_short_tokens();
    let manager = patient_builder(&url).identify(false).ttl(LONG).connect().await.expect("connect");
    sleep(IDLE).await;
    let guard = manager.lock("k").acquire().await.expect("a try, after a pause");
    sleep(IDLE).await;
    guard.release().await.expect("a release, after a pause");
    sleep(IDLE).await;
    let guard = manager.lock("k").wait(LONG).acquire().await.expect("a lock with `wait`");
    sleep(IDLE).await;
    let status = manager.inspect("k").await.expect("a look, after a pause");
    assert!(matches!(status, distlock::LockStatus::Held { .. }), "{status:?}");
    sleep(IDLE).await;
    assert_busy(manager.lock("k").acquire().await);
    guard.release().await.expect("it was held");
    for mode in [LockMode::Read, LockMode::Write] {
        sleep(IDLE).await;
        let guard = manager.lock("k").mode(mode).acquire().await.expect("a try in a mode");
        sleep(IDLE).await;
        guard.release().await.expect("its release");
    }
    sleep(IDLE).await;
    let permit = manager.lock("p").permits(2).acquire().await.expect("a permit");
    sleep(IDLE).await;
    permit.release().await.expect("its release");
}

/// A renewal is the first call after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd4_an_expired_token_costs_no_renewal() {
    let (_server, url) = with_short_tokens();
    let manager = patient_builder(&url).identify(false).connect().await.expect("connect");
    // Renewed every five seconds or so.
    let guard = manager.lock("k").ttl(15 * SECOND).acquire().await.expect("it is free");
    for _ in 0..4 {
        sleep(IDLE).await;
        assert!(guard.is_held());
    }
    guard.release().await.expect("it was held");
}

/// A waiter whose token expired while it waited is told of its turn, and its place is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd4_an_expired_token_costs_no_turn() {
    let (server, url) = with_short_tokens();
    let builder = || patient_builder(&url).identify(false).ttl(LONG);
    let (one, other) = (builder().connect().await, builder().connect().await);
    let (one, other) = (one.expect("connect"), other.expect("connect"));
    let mut took = Vec::new();
    for mode in [None, Some(LockMode::Read), Some(LockMode::Write)] {
        let guard = held(&one, "k").await;
        // The first call of the waiter after a pause, and then its watch.
        sleep(IDLE).await;
        let request = other.lock("k").wait(LONG);
        let request = if let Some(mode) = mode { request.mode(mode) } else { request };
        let waiting = tokio::spawn(request.acquire());
        wait_for("it waits", async || server_left(&server, 2)).await;
        sleep(ms(300)).await;
        guard.release().await.expect("it was held");
        let began = Instant::now();
        served(waiting).await.release().await.expect("it was held");
        took.push(began.elapsed());
    }
    // Looks come every five seconds: at least one turn was heard of.
    assert!(took.iter().any(|took| *took < SECOND), "{took:?}");
}

/// How many keys of locks there are, seen by the administrator.
fn server_left(server: &EtcdServer, many: usize) -> bool {
    server.keys_as_root().iter().filter(|key| key.contains(":lock:")).count() >= many
}

/// What watches a key of a holder is set again when the server has forgotten where it begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd11_a_watch_that_a_compaction_ended_is_set_again() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.addr());
    let (one, other) = (connect(&server.url_at(proxy.addr())).await, connect(&server.url()).await);
    for round in 0..3 {
        let key = format!("k{round}");
        // Renewed after 20 s only: in the meantime only its watches tell it anything.
        let guard = one.lock(&key).ttl(60 * SECOND).acquire().await.expect("it is free");
        // Before its watches are sent, which it has as a holder after 20 ms.
        proxy.set(Mode::Freeze);
        sleep(ms(200)).await;
        for n in 0..3 {
            held(&other, &format!("other {n}")).await.release().await.expect("it was held");
        }
        server.compact();
        proxy.set(Mode::Pass);
        sleep(ms(500)).await;
        let stored = server.left().into_iter().find(|stored| stored.contains(&key));
        server.delete(&stored.expect("its key"));
        timeout(10 * SECOND, guard.lost()).await.expect("it is told");
        drop(guard);
    }
    no_key_is_left(&server);
}

#[test]
fn a_mistake_in_the_url_is_named_and_the_password_is_not() {
    let mistake = LockManager::connect_lazy("etcd://shop:hunter2@host:port");
    let Err(LockError::InvalidOption { .. }) = &mistake else { panic!("a mistake") };
    let text = whole_text(&mistake.expect_err("a mistake"));
    assert!(text.contains("port") && !text.contains("hunter2"), "{text}");
}
