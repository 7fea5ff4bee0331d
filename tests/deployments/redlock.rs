//! Redlock: a lock that a majority of independent servers gives. What survives a server, what does not count,
//! and what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, LockMode};
use distlock_testkit::{
    Certificates, LONG, Mode, Proxy, Quorum, RedisServer, SECOND, assert_busy, connect, held, ms,
    patient, patient_builder, wait_for, waits, whole_text,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Runs so many locks of one task, and says how long they took.
async fn locks(manager: &LockManager, n: u32) -> Duration {
    let begun = Instant::now();
    for _ in 0..n {
        held(manager, "k").await.release().await.expect("it was held");
    }
    begun.elapsed()
}

/// D8: a server that stands still is not waited for, whether it is known to or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_minority_that_stands_still_costs_nothing() {
    let quorum = Quorum::of(3);
    let manager = patient_builder(&quorum.url()).command_timeout(3 * SECOND).connect().await;
    let manager = manager.expect("connect");
    locks(&manager, 5).await;
    for still in &quorum.nodes {
        still.stop();
        let took = locks(&manager, 20).await;
        still.cont();
        assert!(took < 30 * SECOND, "{took:?}: three seconds each, if the server was waited for");
        sleep(ms(50)).await;
    }
    let guard = held(&manager, "held").await;
    quorum.nodes[0].stop();
    let (next, mut waiting) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for place in 0..5 {
        let (next, request) = (next.clone(), manager.lock("held").ttl(LONG).wait(LONG));
        waiting.spawn(async move {
            let guard = request.acquire().await.expect("its turn comes");
            assert_eq!(next.fetch_add(1, SeqCst), place, "first come, first served");
            guard.release().await.expect("it was held");
        });
        wait_for("it waits", async || manager.status().waiting == place + 1).await;
    }
    drop(guard);
    while let Some(waited) = timeout(LONG, waiting.join_next()).await.expect("they are served") {
        waited.expect("no panic");
    }
    quorum.nodes[0].cont();
}

/// D8: without a majority there is no lock, and its holder stops; with one there is again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_without_a_majority_there_is_no_lock() {
    let mut quorum = Quorum::of(3);
    let manager = patient_builder(&quorum.url()).command_timeout(SECOND).connect().await;
    let manager = manager.expect("connect");
    let guard = manager.lock("held").ttl(5 * SECOND).acquire().await.expect("it is free");
    quorum.nodes[0].kill9();
    sleep(8 * SECOND).await;
    assert!(guard.is_held(), "a majority renews it");
    quorum.nodes[1].kill9();
    timeout(LONG, guard.lost()).await.expect("a minority keeps nobody's lease");
    let refused = manager.lock("k").ttl(LONG).acquire().await;
    assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
    quorum.nodes[1].restart();
    wait_for("a majority is there", async || manager.lock("k").acquire().await.is_ok()).await;
}

/// D8: a server whose answer to a try is lost may have voted all the same. Its vote is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_vote_whose_answer_is_lost_is_given_back() {
    let mut quorum = Quorum::of(3);
    let one = patient(&quorum.url()).await;
    // The first holder has two servers of three, and stays with them.
    quorum.nodes[1].kill9();
    let first = one.lock("k").ttl(LONG).renew(false).acquire().await.expect("two are a majority");
    quorum.nodes[1].restart();
    let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let other = connect(&Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s")).await;
    // The one that votes is heard of first, and only that its connection has broken.
    proxies[0].set(Mode::Delay(ms(100)));
    proxies[1].set(Mode::CutDown(0));
    proxies[2].set(Mode::Delay(ms(100)));
    assert_busy(other.lock("k").ttl(LONG).acquire().await);
    assert!(!quorum.nodes[1].held_locks().is_empty(), "it has voted");
    for proxy in &proxies {
        proxy.set(Mode::Pass);
    }
    wait_for("the vote is given back", async || quorum.nodes[1].held_locks().is_empty()).await;
    first.release().await.expect("it was held");
}

/// D8: a holder that gives its lock back does not wait for a server that stands still, which comes to know of it
/// all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_release_reaches_a_server_that_stood_still() {
    let quorum = Quorum::of(3);
    let manager = connect(&quorum.url()).await;
    let guard = held(&manager, "k").await;
    quorum.nodes[2].stop();
    guard.release().await.expect("a majority has confirmed it");
    assert!(quorum.nodes[..2].iter().all(|node| node.held_locks().is_empty()));
    quorum.nodes[2].cont();
    wait_for("it has heard of it", async || quorum.nodes[2].held_locks().is_empty()).await;
}

/// For long, at every server of the quorum.
async fn held_everywhere(quorum: &Quorum, manager: &LockManager) -> LockGuard {
    let guard = manager.lock("k").ttl(10 * LONG).acquire().await.expect("it is free");
    wait_for("all have given it", async || {
        quorum.nodes.iter().all(|node| !node.held_locks().is_empty())
    })
    .await;
    guard
}

/// D8: the same for one that was cut off, and for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_release_reaches_a_server_that_was_cut_off() {
    let quorum = Quorum::of(3);
    let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let url = Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s");
    let manager = patient_builder(&url).command_timeout(ms(200)).connect().await;
    let manager = manager.expect("connect");
    let guard = held_everywhere(&quorum, &manager).await;
    proxies[2].set(Mode::Reset);
    guard.release().await.expect("a majority has confirmed it");
    // Longer than all its repeats take that are for a server that answers.
    sleep(10 * SECOND).await;
    assert!(!quorum.nodes[2].held_locks().is_empty(), "it has not heard of it");
    proxies[2].set(Mode::Pass);
    wait_for("it has heard of it", async || quorum.nodes[2].held_locks().is_empty()).await;
}

/// D8: the same for the token that a holder had before it became a reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d8_a_downgrade_reaches_a_server_that_was_cut_off() {
    let quorum = Quorum::of(3);
    let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let url = Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s");
    let manager = patient(&url).await;
    let guard = held_everywhere(&quorum, &manager).await;
    proxies[2].set(Mode::Reset);
    let reader = guard.downgrade().await.expect("a majority has exchanged it");
    reader.release().await.expect("a majority has confirmed it");
    proxies[2].set(Mode::Pass);
    wait_for("it has heard of it", async || quorum.nodes[2].held_locks().is_empty()).await;
}

/// Fencing tokens go beyond what a majority has accepted, whatever any clock says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_fencing_tokens_go_beyond_what_a_majority_has_accepted() {
    let quorum = Quorum::of(3);
    let before = held(&patient(&quorum.url()).await, "k").await;
    let token = before.fencing_token();
    before.release().await.expect("it was held");
    // As another process leaves it to which the servers' clocks are an hour ahead: in µs.
    let time: Vec<u64> = quorum.nodes[0].cli(&["TIME"]);
    let ahead = (time[0] + 3600) * 1_000_000;
    for node in &quorum.nodes[..2] {
        let score = ahead.to_string();
        node.cli::<()>(&["ZADD", "distlock:fence:quorum", &score, "last"]);
    }
    // One that knows nothing of it, and one more.
    let next = held(&patient(&quorum.url()).await, "k").await;
    let beyond = next.fencing_token();
    next.release().await.expect("it was held");
    let last = held(&patient(&quorum.url()).await, "k").await;
    // Each has room for the callers of a process that hold the lock in turn.
    assert!(beyond / 1024 > ahead, "{beyond} is not beyond {ahead}");
    assert!(last.fencing_token() > beyond && beyond > token);
}

/// D9: a server that has restarted without its data does not help a second holder to a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_server_that_forgot_does_not_count() {
    const TTL: Duration = Duration::from_secs(4);
    let quorum = Quorum::of(3);
    // Every server is older than the guard: only a restart matters.
    sleep(TTL + 2 * SECOND).await;
    // The first holder does not reach the third server, which stays free.
    let proxy = Proxy::to(quorum.nodes[2].addr());
    let addrs = [quorum.nodes[0].addr(), quorum.nodes[1].addr(), proxy.addr()];
    let builder = |url: &str| patient_builder(url).command_timeout(SECOND).ttl(TTL);
    let one = builder(&Quorum::url_over(addrs, "guard=4s")).connect().await.expect("connect");
    let other = builder(&quorum.url_with("guard=4s")).connect().await.expect("connect");
    proxy.set(Mode::Reset);
    let first = one.lock("k").renew(false).acquire().await.expect("two are a majority");
    let quorum = tokio::task::spawn_blocking(move || {
        let mut quorum = quorum;
        quorum.nodes[1].restart_empty();
        quorum
    });
    let _quorum = quorum.await.expect("no panic");
    // The servers 1 and 2 are free: a majority, if the one that forgot counted.
    let mut refused = 0;
    let second = loop {
        match other.lock("k").acquire().await {
            Ok(second) => break second,
            Err(_) => refused += 1,
        }
        assert!(refused < 10_000, "it is free after the ttl");
        sleep(ms(5)).await;
    };
    assert!(!first.is_held(), "two hold the lock, after {refused} refusals");
    assert!(second.fencing_token() > first.fencing_token());
}

/// D9: servers that nobody has watched grant nothing for the time of the guard. `connect` waits for it, and calls of a
/// manager that does not wait say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_new_servers_say_when_they_count() {
    let quorum = Quorum::of(3);
    let connecting = patient_builder(&quorum.url_with("guard=10m")).connect();
    assert!(timeout(3 * SECOND, connecting).await.is_err(), "it waits for the guard");
    let lazy = LockManager::builder().url(quorum.url_with("guard=10m")).build().expect("no I/O");
    let mut text = String::new();
    wait_for("a call says so", async || {
        let error = lazy.lock("k").acquire().await.expect_err("nothing is granted");
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        text = whole_text(&error);
        text.contains("too recently") && text.contains("restart_guard")
    })
    .await;
    assert!(
        quorum.nodes.iter().all(|node| node.held_locks().is_empty()) || {
            wait_for("what was taken is given back", async || {
                quorum.nodes.iter().all(|node| node.held_locks().is_empty())
            })
            .await;
            true
        }
    );
}

/// D10: lists that no two processes may use together are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d10_a_list_that_cannot_be_right_is_refused() {
    let quorum = Quorum::of(3);
    let refused = async |url: String, mend: &str| {
        let begun = Instant::now();
        let error = LockManager::connect(&url).await.expect_err("it must be refused");
        let text = whole_text(&error);
        assert!(text.contains(mend), "{mend:?} is not in: {text}");
        assert!(begun.elapsed() < 10 * SECOND, "{url}: {:?}", begun.elapsed());
    };
    let addr = |at: usize| quorum.nodes[at].addr();
    let twice =
        format!("redlock://127.0.0.1:{0},localhost:{0},{1}?guard=0s", addr(0).port(), addr(1));
    // A server that answers a second after a majority is not waited for, as on a busy machine; later it counts once.
    let mut error = None;
    for _ in 0..10 {
        error = LockManager::connect(&twice).await.err();
        if error.is_some() {
            break;
        }
    }
    let text = whole_text(&error.expect("it must be refused"));
    assert!(text.contains("the same server"), "{text}");
    drop(patient(&quorum.url()).await);
    let (fourth, fifth) = (RedisServer::start(), RedisServer::start());
    let five = quorum.nodes.iter().chain([&fourth, &fifth]).map(RedisServer::addr);
    refused(Quorum::url_over(five, "guard=0s"), "give every process the same list").await;
    refused(format!("redlock://{},{}", addr(0), addr(1)), "give three").await;
}

/// D10: nor has a server two votes that answers under its second name only when locks are held already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d10_a_server_that_is_found_twice_later_has_one_vote() {
    let mut quorum = Quorum::of(3);
    let again = Proxy::to(quorum.nodes[0].addr());
    again.set(Mode::Freeze);
    let [one, other] = [0, 1].map(|at| quorum.nodes[at].addr());
    let url = Quorum::url_over([one, other, again.addr()].into_iter(), "guard=0s");
    let manager = patient_builder(&url).build().expect("a manager");
    let guard = manager.lock("k").ttl(5 * SECOND).acquire().await.expect("two are a majority");
    again.set(Mode::Pass);
    quorum.nodes[1].kill9();
    wait_for("one server alone does not keep it", async || !guard.is_held()).await;
}

/// What a majority cannot give is refused before anything is sent.
#[tokio::test]
async fn what_a_quorum_cannot_keep_is_refused() {
    let manager = LockManager::builder().url("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
    let manager = manager.ttl(SECOND).restart_guard(2 * SECOND).build().expect("no I/O");
    let invalid = |refused: Result<_, LockError>, mend: &str| {
        let error = refused.map(drop).expect_err(mend);
        assert!(matches!(error, LockError::InvalidOption { .. }), "{error:?}");
        assert!(error.to_string().contains(mend), "{error}");
    };
    invalid(manager.lock("k").permits(3).acquire().await, "permits");
    invalid(manager.lock("k").ttl(3 * SECOND).acquire().await, "restart_guard");
    invalid(manager.lock("k").min_hold(3 * SECOND).acquire().await, "restart_guard");
    let builder =
        LockManager::builder().url("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?guard=1s");
    let error = builder.ttl(2 * SECOND).build().expect_err("the ttl is longer than the guard");
    assert!(error.to_string().contains("restart_guard"), "{error}");
}

/// Each server may have a password, a database and a certificate of its own; none is revealed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_server_may_have_a_url_of_its_own() {
    let ours = Certificates::new();
    let certificate = ours.issue("local", &["IP:127.0.0.1"]);
    let servers = [
        RedisServer::builder().password("hush-one").start(),
        RedisServer::start(),
        RedisServer::builder().password("hush-three").tls(&certificate).start(),
    ];
    let urls = [servers[0].url(), servers[1].url_of_db(2), servers[2].tls_url("127.0.0.1")];
    let builder = |urls: [String; 3]| {
        LockManager::builder().urls(urls).ttl(LONG).restart_guard(Duration::ZERO)
    };
    let manager = builder(urls.clone()).connect().await.expect("connect");
    let guard = manager.lock("k").acquire().await.expect("it is free");
    let has_it = |server: &RedisServer, db: &str| {
        let mut look = redis::pipe();
        look.cmd("SELECT").arg(db).ignore().cmd("KEYS").arg("*:lock:*");
        let (keys,): (Vec<String>,) = look.query(&mut server.eye()).expect("KEYS");
        !keys.is_empty()
    };
    wait_for("all have it", async || {
        has_it(&servers[0], "0") && has_it(&servers[1], "2") && has_it(&servers[2], "0")
    })
    .await;
    guard.release().await.expect("it was held");
    assert!(!format!("{manager:?} {:?}", builder(urls.clone())).contains("hush"));
    // One of them wrong is an error, although two are right.
    let wrong = [urls[0].replace("one", "none"), urls[1].clone(), urls[2].clone()];
    let error = builder(wrong).connect().await.expect_err("a wrong password");
    assert!(!whole_text(&error).contains("hush"), "{}", whole_text(&error));
    let stranger = format!("rediss://:hush-three@{}", servers[2].addr());
    let unknown = [urls[0].clone(), urls[1].clone(), stranger];
    let error = builder(unknown).connect().await.expect_err("an unknown authority");
    let text = whole_text(&error);
    assert!(text.contains("ca=PATH") && !text.contains("hush"), "{text}");
}

/// Several that come at the same time have some servers each, and none a majority: the first one gets the
/// lock, and none waits for a lease to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_votes_are_resolved() {
    for nodes in [3, 4, 5] {
        let quorum = Quorum::of(nodes);
        // Each process reaches another server first, and long before the others do.
        let (mut managers, mut networks) = (Vec::new(), Vec::new());
        for first in 0..4 {
            let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
            for (at, proxy) in proxies.iter().enumerate() {
                let place = (at + nodes - first % nodes) % nodes;
                proxy.set(Mode::Delay(ms(1 + 8 * place as u64)));
            }
            let url = Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s");
            managers.push(connect(&url).await);
            networks.push(proxies);
        }
        let last = Arc::new(AtomicU64::new(0));
        let inside = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        for round in 0..4 {
            let mut tasks = JoinSet::new();
            for manager in &managers {
                let (last, inside) = (last.clone(), inside.clone());
                let request = manager.lock("k").ttl(LONG).wait(LONG / 4);
                tasks.spawn(async move {
                    let guard = request.acquire().await.expect("its turn comes");
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
                    let token = guard.fencing_token();
                    assert!(last.fetch_max(token, SeqCst) < token, "fencing tokens grow");
                    sleep(ms(2)).await;
                    inside.fetch_sub(1, SeqCst);
                    guard.release().await.expect("it was held");
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap_or_else(|error| panic!("{nodes} nodes, round {round}: {error}"));
            }
        }
        // The claim of a waiter that was let in and does not come lasts a second and more.
        assert!(begun.elapsed() < 40 * SECOND, "{nodes} nodes: {:?}", begun.elapsed());
        wait_for("nothing is left", async || {
            quorum.nodes.iter().all(|node| node.lock_keys().is_empty())
        })
        .await;
    }
}

/// D11: a lease that was taken while a server was down comes to rest on it with a renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d11_a_lease_comes_to_rest_on_all_servers() {
    let mut quorum = Quorum::of(3);
    // A server that has restarted counts soon.
    let one = patient_builder(&quorum.url()).restart_guard(6 * SECOND).ttl(5 * SECOND);
    let one = one.connect().await.expect("connect");
    let other = patient(&quorum.url()).await;
    quorum.nodes[2].kill9();
    let guard = one.lock("k").ttl(5 * SECOND).acquire().await.expect("two are a majority");
    quorum.nodes[2].restart();
    wait_for("the third has it as well", async || !quorum.nodes[2].held_locks().is_empty()).await;
    quorum.nodes[0].kill9();
    sleep(8 * SECOND).await;
    assert!(guard.is_held(), "it rests on the two that are left");
    assert_busy(other.lock("k").acquire().await);
    guard.release().await.expect("it was held");
    held(&other, "k").await.release().await.expect("it was held");
}

/// Readers are together, and the first of them after a downgrade was the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_goes_on_as_a_reader() {
    let quorum = Quorum::of(3);
    let (one, other) = (connect(&quorum.url()).await, connect(&quorum.url()).await);
    let writer = one.lock("k").mode(LockMode::Write).ttl(LONG).acquire().await.expect("it is free");
    let written = writer.fencing_token();
    let waiting = waits(&other, "k");
    wait_for("a writer waits", async || other.status().waiting == 1).await;
    let reader = writer.downgrade().await.expect("it was held");
    assert!(reader.is_held() && reader.fencing_token() > written);
    drop(reader);
    let next = timeout(LONG, waiting).await.expect("its turn comes");
    drop(next);
}
