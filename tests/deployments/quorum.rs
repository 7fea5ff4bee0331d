//! Which servers of a quorum count: those that this process, or another one, has watched for long enough, and
//! that belong to the same quorum for every process.

use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LockManagerBuilder, LockMode};
use distlock_testkit::{
    LONG, Mode, Proxy, Quorum, RedisServer, SECOND, WallClock, assert_busy, held, ms, patient,
    patient_builder, wait_for, whole_text,
};
use tokio::time::sleep;

/// The restart guard, and the leases' length, of a test that waits for its end.
const GUARD: Duration = Duration::from_secs(4);
const ENDS: &str = "guard=4s";

/// A manager whose calls give up on a server soon.
fn quick(url: &str) -> LockManagerBuilder {
    patient_builder(url).command_timeout(SECOND).ttl(GUARD)
}

/// Connects, which takes a guard where nobody has watched the servers yet.
async fn counted(builder: LockManagerBuilder) -> LockManager {
    builder.connect().await.expect("connect")
}

/// Two processes at three servers, the second of which the first process does not reach: it holds its lock at
/// the others. `came_back` replaces the third server, and the first one is frozen. So the other process gets the
/// lock once the server that came back counts, and no earlier than the lease has ended.
async fn votes_no_earlier_than_the_lease_ends(
    quorum: Quorum,
    came_back: impl FnOnce(&mut RedisServer) + Send + 'static,
) {
    let proxy = Proxy::to(quorum.nodes[1].addr());
    let addrs = [quorum.nodes[0].addr(), proxy.addr(), quorum.nodes[2].addr()];
    let other = counted(quick(&quorum.url_with(ENDS))).await;
    let one = counted(quick(&Quorum::url_over(addrs, ENDS))).await;
    proxy.set(Mode::Reset);
    // `connect` returns once a majority counts, and the third server may be told a little later that it does.
    let mut first = None;
    wait_for("two are a majority", async || {
        first = one.lock("k").renew(false).acquire().await.ok();
        first.is_some()
    })
    .await;
    let first = first.expect("it was granted");
    wait_for("both have given it", async || {
        [0, 2].iter().all(|at| !quorum.nodes[*at].held_locks().is_empty())
    })
    .await;
    quorum.nodes[0].stop();
    let quorum = tokio::task::spawn_blocking(move || {
        let mut quorum = quorum;
        came_back(&mut quorum.nodes[2]);
        quorum
    });
    let _quorum = quorum.await.expect("no panic");
    let (begun, mut refused) = (Instant::now(), 0);
    let second = loop {
        match other.lock("k").acquire().await {
            Ok(second) => break second,
            Err(_) => refused += 1,
        }
        assert!(begun.elapsed() < 2 * LONG, "it is free after the guard, {refused} refusals");
        sleep(ms(5)).await;
    };
    assert!(!first.is_held(), "two hold the lock, after {refused} refusals");
    drop(second);
}

/// A server counts its uptime by its wall clock, which NTP sets forward after a boot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc5_a_server_whose_clock_steps_forward_does_not_count_earlier() {
    let clock = WallClock::new();
    let skewed = RedisServer::builder().clock(&clock);
    let quorum = Quorum::with(vec![RedisServer::builder(), RedisServer::builder(), skewed]);
    votes_no_earlier_than_the_lease_ends(quorum, move |server| {
        server.restart_empty();
        clock.steps_to(60);
    })
    .await;
}

/// The last second of an append-only file may be missing: what a server has kept says nothing about what it has
/// forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc5_a_server_that_is_back_with_everything_but_the_lock_does_not_count() {
    let durable = RedisServer::builder().durable();
    let quorum = Quorum::with(vec![RedisServer::builder(), RedisServer::builder(), durable]);
    votes_no_earlier_than_the_lease_ends(quorum, |server| {
        for lock in server.held_locks() {
            server.cli::<()>(&["DEL", &lock]);
        }
        server.restart();
    })
    .await;
}

/// The first start of a quorum takes a guard, which `connect` waits for. Later starts do not: the processes that
/// have watched the servers say so there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc5_the_first_start_takes_a_guard_and_later_ones_do_not() {
    let quorum = Quorum::of(3);
    let (url, begun) = (quorum.url_with("guard=15s"), Instant::now());
    let first = counted(patient_builder(&url)).await;
    assert!(begun.elapsed() >= 15 * SECOND, "{:?}: nobody had watched them", begun.elapsed());
    first.lock("k").acquire().await.expect("it is free").release().await.expect("it was held");
    wait_for("the servers say so", async || {
        quorum.nodes.iter().all(|node| node.cli(&["EXISTS", "distlock:quorum:watched"]))
    })
    .await;
    drop(first);
    let begun = Instant::now();
    let second = counted(patient_builder(&url)).await;
    second.lock("k").acquire().await.expect("it is free").release().await.expect("it was held");
    assert!(begun.elapsed() < 12 * SECOND, "{:?}", begun.elapsed());
    // A longer guard is not over.
    let longer = patient_builder(&quorum.url_with("guard=10m")).build().expect("no I/O");
    let error = longer.lock("k").acquire().await.expect_err("it is not watched for long enough");
    assert!(whole_text(&error).contains("too recently"), "{}", whole_text(&error));
}

/// A call that may wait rides out the guard, and one that may not says for how long it lasts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc5_a_call_that_may_wait_rides_out_the_guard() {
    let quorum = Quorum::of(3);
    let manager = quick(&quorum.url_with(ENDS)).build().expect("no I/O");
    let error = manager.lock("k").acquire().await.expect_err("the servers are new");
    let text = whole_text(&error);
    assert!(text.contains("locks are granted in") && text.contains("restart_guard"), "{text}");
    let guard = manager.lock("k").wait(LONG).acquire().await.expect("the guard is over");
    guard.release().await.expect("it was held");
}

/// Two lists of the same size that differ by one server have majorities without a server in common.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc7_a_list_with_another_server_is_refused() {
    let (quorum, fourth) = (Quorum::of(3), RedisServer::start());
    let one = patient(&quorum.url()).await;
    let first = held(&one, "k").await;
    wait_for("all have given it", async || {
        quorum.nodes.iter().all(|node| !node.held_locks().is_empty())
    })
    .await;
    // As if it had not answered in time.
    quorum.nodes[1].cli::<()>(&["DEL", &quorum.nodes[1].held_locks()[0]]);
    let [a, b] = [0, 1].map(|at| quorum.nodes[at].addr());
    for list in [[a, b, fourth.addr()], [fourth.addr(), b, a]] {
        let url = Quorum::url_over(list, "guard=0s");
        let error = LockManager::connect(&url).await.expect_err("another list");
        let text = whole_text(&error);
        assert!(text.contains("give every process the same list"), "{text}");
        assert!(text.contains(&fourth.addr().to_string()), "{text}");
        let lazy = patient_builder(&url).command_timeout(SECOND).build().expect("no I/O");
        for _ in 0..20 {
            assert!(lazy.lock("k").acquire().await.is_err(), "two hold the lock");
        }
    }
    assert!(first.is_held());
    first.release().await.expect("it was held");
    // Nor may a server have the data of another one.
    let id: String = quorum.nodes[2].cli(&["GET", "distlock:quorum:id"]);
    let record: String = quorum.nodes[2].cli(&["GET", "distlock:quorum"]);
    fourth.cli::<()>(&["MSET", "distlock:quorum:id", &id, "distlock:quorum", &record]);
    let all = quorum.nodes.iter().map(RedisServer::addr).chain([fourth.addr()]);
    let twice = Quorum::url_over(all.skip(1), "guard=0s");
    let error = LockManager::connect(&twice).await.expect_err("a copy of a server");
    assert!(whole_text(&error).contains("a copy"), "{}", whole_text(&error));
}

/// A server that comes back empty has another id, and belongs to the quorum all the same: for processes that used
/// it before, and for new ones that list it by the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc7_a_server_that_comes_back_empty_belongs_to_its_quorum() {
    for known in [true, false] {
        let mut quorum = Quorum::of(3);
        let url = quorum.url_with("guard=1s");
        let builder = || patient_builder(&url).command_timeout(SECOND);
        let mut manager = counted(builder()).await;
        let before: String = quorum.nodes[2].cli(&["GET", "distlock:quorum:id"]);
        if !known {
            drop(manager);
            quorum.nodes[2].restart_empty();
            manager = counted(builder()).await;
        } else {
            quorum.nodes[2].restart_empty();
        }
        wait_for("all know its new id", async || {
            let _ = manager.lock("k").acquire().await;
            let id: Option<String> = quorum.nodes[2].cli(&["GET", "distlock:quorum:id"]);
            let records = quorum.nodes.iter().map(|node| node.cli(&["GET", "distlock:quorum"]));
            let records: Vec<Option<String>> = records.collect();
            id.is_some_and(|id| {
                let has_it = |record: &Option<String>| {
                    record.as_ref().is_some_and(|record| record.contains(&id))
                };
                id != before && records.iter().all(has_it)
            })
        })
        .await;
        quorum.nodes[0].kill9();
        wait_for("it counts", async || manager.lock("k").acquire().await.is_ok()).await;
    }
}

/// As the guide says: the old server is stopped, its quorum's key is deleted at the others, and processes are
/// restarted with the new list one after the other. Those with the old list go on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc7_a_server_is_replaced() {
    let (mut quorum, new) = (Quorum::of(3), RedisServer::start());
    let old = counted(patient_builder(&quorum.url_with("guard=1s")).command_timeout(SECOND)).await;
    let [a, b] = [0, 1].map(|at| quorum.nodes[at].addr());
    let url = Quorum::url_over([a, b, new.addr()], "guard=1s");
    assert!(LockManager::connect(&url).await.is_err(), "the old server may be there still");
    quorum.nodes[2].kill9();
    for node in &quorum.nodes[..2] {
        node.cli::<()>(&["DEL", "distlock:quorum"]);
    }
    let next = counted(patient_builder(&url).command_timeout(SECOND)).await;
    for (one, other) in [(&old, &next), (&next, &old)] {
        let guard = one.lock("k").ttl(SECOND).wait(LONG).acquire().await.expect("a majority");
        assert_busy(other.lock("k").ttl(SECOND).acquire().await);
        guard.release().await.expect("it was held");
    }
    drop(old);
    quorum.nodes[0].kill9();
    wait_for("the new server counts", async || next.lock("k").acquire().await.is_ok()).await;
}

/// A try whose bytes arrive behind its release, over a connection that was given up: the release is repeated until
/// none can come any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc8_a_vote_that_arrives_behind_its_release_is_given_back() {
    let quorum = Quorum::of(3);
    for node in &quorum.nodes {
        // Without the right to close connections nobody can keep the bytes from arriving.
        let user = ["ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all"];
        node.cli::<()>(&[&user[..], &["-client|kill"]].concat());
    }
    let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let url = Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s");
    let url = url.replacen("://", "://app:secret@", 1);
    let manager = patient_builder(&url).command_timeout(SECOND).connect().await.expect("connect");
    held(&manager, "before").await.release().await.expect("it was held");
    proxies.iter().for_each(|proxy| proxy.set(Mode::FreezeExisting));
    let lost = manager.lock("k").ttl(10 * LONG).acquire().await;
    assert!(matches!(lost, Err(LockError::Backend { .. })), "{lost:?}");
    // The release is answered over new connections.
    wait_for("it is connected again", async || manager.lock("other").acquire().await.is_ok()).await;
    sleep(2 * SECOND).await;
    proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
    let arrived = Instant::now();
    wait_for("nothing is left", async || {
        quorum.nodes.iter().all(|node| node.held_locks().is_empty())
    })
    .await;
    // A release that is not repeated has stood for half a minute and more.
    assert!(arrived.elapsed() < 20 * SECOND, "{:?}", arrived.elapsed());
    drop(held(&manager, "k").await);
}

/// Three of five servers are frozen, or down: which ones, and how many are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fo13_an_error_says_which_servers_are_missing() {
    for frozen in [true, false] {
        let mut quorum = Quorum::of(5);
        let url = quorum.url();
        let quick = || LockManager::builder().url(&url).connect_timeout(5 * SECOND);
        let manager = patient_builder(&url).command_timeout(SECOND).connect().await;
        let manager = manager.expect("connect");
        for node in &mut quorum.nodes[2..] {
            match frozen {
                true => node.stop(),
                false => node.kill9(),
            }
        }
        let says = |error: &LockError| {
            let text = whole_text(error);
            let missing =
                quorum.nodes[2..].iter().all(|one| text.contains(&one.addr().to_string()));
            text.contains("2 of 5 servers answered, 3 are needed") && missing
        };
        let error = quick().connect().await.expect_err("no majority");
        assert!(says(&error), "{}", whole_text(&error));
        // At once, and when they are known to be down.
        for mode in [LockMode::Exclusive, LockMode::Read] {
            let mut said = String::new();
            wait_for("a call says so", async || {
                let error = manager.lock("k").mode(mode).acquire().await.expect_err("no majority");
                said = whole_text(&error);
                says(&error)
            })
            .await;
        }
    }
}

/// A guard below the default `ttl` makes that shorter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fo14_the_default_ttl_is_no_longer_than_the_guard() {
    let quorum = Quorum::of(3);
    let manager = LockManager::connect(&quorum.url_with("guard=1s")).await.expect("connect");
    let guard = manager.lock("k").renew(false).wait(LONG).acquire().await.expect("it is free");
    assert!(guard.remaining() <= SECOND, "{:?}", guard.remaining());
    let refused = manager.lock("k").ttl(2 * SECOND).acquire().await;
    assert!(matches!(refused, Err(LockError::InvalidOption { .. })), "{refused:?}");
    let refused = LockManager::builder().url(quorum.url_with("guard=1s")).ttl(2 * SECOND).build();
    assert!(matches!(refused, Err(LockError::InvalidOption { .. })), "{refused:?}");
}
