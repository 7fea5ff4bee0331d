//! Connections to the store that are away: errors name the node and the cause, and the log has one line for
//! each connection when that begins and one when it ends.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock::observe::{Connection, Observer};
use distlock::{LockError, LockManager, redis_lock, with_manager};
use distlock_testkit::conformance::Remote;
use distlock_testkit::{
    Cluster, EtcdServer, LONG, Log, Mode, PostgresServer, Proxy, Quorum, RedisServer, SECOND,
    Sentinels, ZooKeeperServer, in_own_process, ms, patient_builder, this_test, wait_for,
};

/// Nothing listens there.
const NOWHERE: &str = "127.0.0.1:1";
const PASSWORD: &str = "hush-hush";
const WHO: &str = "alice@example.org";

/// Both forms are one line that names the node and the cause, and neither key nor password.
#[track_caller]
fn names(error: &LockError, node: &str, causes: &[&str]) {
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains(node), "{node} is not in: {text}");
        assert!(causes.iter().any(|cause| text.contains(cause)), "none of {causes:?} in: {text}");
        assert!(!text.contains(PASSWORD) && !text.contains(WHO), "{text}");
        assert_eq!(text.matches(node).count(), 1, "named twice: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fw8_an_error_of_a_store_that_is_not_there_names_host_port_and_cause() {
    for (url, hosts) in [
        (format!("redis://:{PASSWORD}@{NOWHERE}"), NOWHERE),
        (format!("redis-sentinel://:{PASSWORD}@{NOWHERE}/shop"), NOWHERE),
        (format!("redis-cluster://:{PASSWORD}@{NOWHERE}"), NOWHERE),
        (format!("postgres://app:{PASSWORD}@{NOWHERE}/shop"), NOWHERE),
        (format!("etcd://app:{PASSWORD}@{NOWHERE}"), NOWHERE),
        (format!("zookeeper://app:{PASSWORD}@{NOWHERE}"), NOWHERE),
    ] {
        let lazy = LockManager::connect_lazy(&*url).expect("no I/O yet");
        let of_lock = lazy.lock(format!("user:{WHO}")).acquire().await;
        let of_connect = LockManager::connect(&*url).await.map(drop);
        for refused in [of_lock.map(drop), of_connect] {
            names(&refused.expect_err(&url), hosts, &["refused"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fw8_an_error_of_a_store_that_is_silent_or_gone_names_it() {
    let mut server = RedisServer::builder().password(PASSWORD).start();
    let node = server.addr().to_string();
    let manager = patient_builder(&server.url()).command_timeout(ms(500)).connect().await;
    let manager = manager.expect("connect");
    let acquire = || manager.lock(format!("user:{WHO}")).ttl(LONG).acquire();
    server.stop();
    let silent = acquire().await.expect_err("it does not answer");
    names(&silent, &node, &["did not answer in time"]);
    server.cont();
    server.kill9();
    wait_for("it is refused", async || {
        let gone = acquire().await.expect_err("it is dead");
        names(&gone, &node, &["refused", "lost", "did not answer", "reset", "closed", "broken"]);
        gone.to_string().contains("refused")
    })
    .await;
}

/// Counts connections that were lost and made.
#[derive(Clone, Default)]
struct Links(Arc<[AtomicUsize; 2]>);

impl Observer for Links {
    fn connection(&self, event: &Connection) {
        match event {
            Connection::Connected => self.0[1].fetch_add(1, SeqCst),
            Connection::Disconnected => self.0[0].fetch_add(1, SeqCst),
            _ => 0,
        };
    }
}

fn setting<T: FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// Callers ask all the time, through an outage between `begin` and `end`. The log has a line for each link that
/// is down, at one of the `nodes`, and one when it is back.
async fn one_line_each(url: &str, nodes: &[String], mut begin: impl FnMut(), end: impl FnOnce()) {
    let log = Log::start();
    let lines = |word: &str| log.events(word).len();
    let before = (lines("link_down"), lines("link_up"));
    let down = || log.events("link_down").split_off(before.0);
    let up = || log.events("link_up").split_off(before.1);
    let links = Links::default();
    let builder = patient_builder(url).observer(links.clone()).outage_grace(Duration::ZERO);
    let manager = builder.connect().await.expect("connect");
    // Renewals have a connection of their own.
    let held = manager.lock("held").ttl(2 * SECOND).acquire().await.expect("free");
    tokio::time::sleep(SECOND).await;
    let granted = Arc::new(AtomicU64::new(0));
    let callers = (0..setting("CALLERS", 200)).map(|n| {
        let (manager, granted) = (manager.clone(), granted.clone());
        tokio::spawn(async move {
            loop {
                let call = manager.lock(format!("user:{WHO}:{n}")).ttl(LONG).run(async {});
                if call.await.is_ok() {
                    granted.fetch_add(1, SeqCst);
                }
                tokio::time::sleep(ms(50)).await;
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    wait_for("they have locks", async || granted.load(SeqCst) > 100).await;
    assert!(down().is_empty() && up().is_empty(), "{}", log.text());
    begin();
    wait_for("it is in the log", async || !down().is_empty()).await;
    tokio::time::sleep(SECOND * setting("OUTAGE", 3)).await;
    assert!(up().is_empty(), "{:#?}", up());
    end();
    wait_for("it is in the log that they are back", async || up().len() == down().len()).await;
    wait_for("they have locks again", async || {
        let before = granted.load(SeqCst);
        tokio::time::sleep(ms(100)).await;
        granted.load(SeqCst) > before
    })
    .await;
    let (gone, back) = (down(), up());
    // A link that was lost for less than a second has no line. One that was first wanted during the outage has a line,
    // and was never lost.
    let [lost, made] = [&links.0[0], &links.0[1]].map(|count| count.load(SeqCst));
    let most = lost.max(made.saturating_sub(lost));
    let told = format!("{lost} lost, {made} made: {gone:#?} {back:#?}");
    assert!(gone.len() == back.len() && gone.len() <= most, "{told}");
    for line in &gone {
        assert!(line.starts_with("WARN") && line.contains("error="), "{line}");
    }
    for line in &back {
        assert!(line.starts_with("INFO") && line.contains("seconds="), "{line}");
    }
    for line in gone.iter().chain(&back) {
        assert!(nodes.iter().any(|node| line.contains(&format!("node={node:?}"))), "{line}");
        assert!(!line.contains(WHO) && !line.contains(PASSWORD), "{line}");
    }
    callers.iter().for_each(|caller| caller.abort());
    drop(held);
    manager.close(LONG).await;
}

async fn behind_a_proxy(server: impl Remote) {
    let proxy = Proxy::to(server.addr());
    let (url, node) = (server.url_at(proxy.addr()), proxy.addr().to_string());
    let cut = || proxy.set(Mode::Reset);
    one_line_each(&url, &[node], cut, || proxy.set(Mode::Pass)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fo1_an_outage_of_redis_is_one_line_for_each_link_when_it_begins_and_one_when_it_ends() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    behind_a_proxy(RedisServer::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fo1_an_outage_of_another_store_too() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    behind_a_proxy(PostgresServer::start()).await;
    behind_a_proxy(EtcdServer::start()).await;
    behind_a_proxy(ZooKeeperServer::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fo1_an_outage_of_one_of_several_servers_too() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let mut quorum = Quorum::of(3);
    let (url, node) = (quorum.url(), quorum.nodes[1].addr().to_string());
    let server = std::sync::Mutex::new(&mut quorum.nodes[1]);
    let kill = || server.lock().expect("no panic").kill9();
    one_line_each(&url, &[node], kill, || server.lock().expect("no panic").restart()).await;

    let cluster = Cluster::start(3, 0);
    let node = [cluster.addr(1).to_string()];
    one_line_each(&cluster.url(), &node, || cluster.node(1).stop(), || cluster.node(1).cont())
        .await;

    let mut sentinels = Sentinels::builder(3).replicas(0).start();
    let (url, node) = (sentinels.url(), sentinels.server(0).addr().to_string());
    let server = std::sync::Mutex::new(sentinels.server_mut(0));
    let kill = || server.lock().expect("no panic").kill9();
    one_line_each(&url, &[node], kill, || server.lock().expect("no panic").restart()).await;
}

#[redis_lock(key = "report:{of}", name = "nightly", on_fail = skip)]
async fn nightly(of: &str) {
    assert_eq!(of, "nobody", "another has the lock");
}

/// A job that never runs anywhere can be found in the log.
#[tokio::test]
async fn fo11_a_job_that_is_skipped_leaves_an_event() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let manager = LockManager::in_memory();
    with_manager(manager.clone(), nightly("nobody")).await;
    assert!(log.events("skipped").is_empty(), "{}", log.text());
    let _held = manager.lock(distlock::key!("report:{WHO}")).acquire().await.expect("free");
    with_manager(manager, nightly(WHO)).await;
    let events = log.events("skipped");
    let [event] = &*events else { panic!("{events:?}") };
    for part in ["DEBUG", "lock.name=\"nightly\"", "lock.template=\"report:{of}\""] {
        assert!(event.contains(part), "{part} is not in: {event}");
    }
    assert!(!event.contains(WHO), "{event}");
}
