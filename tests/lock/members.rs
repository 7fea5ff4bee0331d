//! One of three servers of etcd or ZooKeeper is frozen, drops what is sent to it, or speaks TLS.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use distlock::{LockError, LockManager};
use distlock_testkit::{
    Ensemble, LONG, Member, Mode, Proxy, SECOND, held, ms, notified, wait_for, whole_text,
};
use tokio::time::{Instant, sleep};

/// How long it may take to connect beside one that is frozen, on a machine that has nothing else to do.
const SOON: Duration = Duration::from_millis(1500);

/// One round of several in which each of the clients was quick: a busy machine spoils some rounds, and a client that
/// waits for a frozen member spoils nearly all of them.
async fn soon(what: &str, mut connect: impl AsyncFnMut() -> LockManager) -> Vec<LockManager> {
    let mut slowest = Vec::new();
    for _ in 0..6 {
        let (mut managers, mut longest) = (Vec::new(), Duration::ZERO);
        for _ in 0..10 {
            let began = Instant::now();
            managers.push(connect().await);
            longest = longest.max(began.elapsed());
        }
        if longest < SOON {
            return managers;
        }
        slowest.push(longest);
    }
    panic!("{what}: the slowest client of each round took {slowest:?}");
}

async fn connects_soon(what: &str, url: &str) {
    let builder = || LockManager::builder().url(url).command_timeout(10 * SECOND);
    let managers = soon(what, async || {
        builder().connect_timeout(10 * SECOND).connect().await.expect("two are well")
    })
    .await;
    held(&managers[0], "k").await.release().await.expect("it was held");
}

/// Whichever member takes connections and answers nothing, every client that connects finds another one.
async fn a_frozen_member_holds_nobody_up<P: Member>() {
    let mut ensemble = Ensemble::<P>::start();
    let proxies: Vec<_> = ensemble.addrs().into_iter().map(Proxy::to).collect();
    let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let url = ensemble.url_at(&addrs);
    for (number, proxy) in proxies.iter().enumerate() {
        for mode in [Mode::Freeze, Mode::DropUp] {
            proxy.set(mode);
            connects_soon(&format!("member {number}: {mode:?}"), &url).await;
            proxy.set(Mode::Pass);
        }
    }
    // The others need no election: how long that takes is their affair.
    let follower = (ensemble.leader() + 1) % proxies.len();
    ensemble.stop(follower);
    connects_soon("a follower is stopped", &ensemble.url()).await;
}

/// Clients that lose their member while it is frozen find another one.
async fn a_connection_that_is_lost_is_made_to_another_member<P: Member>() {
    let ensemble = Ensemble::<P>::start();
    let proxies: Vec<_> = ensemble.addrs().into_iter().map(Proxy::to).collect();
    let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let url = ensemble.url_at(&addrs);
    for frozen in 0..3 {
        let manager = notified(LockManager::connect(&url).await.expect("all are well")).await;
        // The best of some: a busy machine makes them longer.
        let mut best = Duration::MAX;
        for _ in 0..10 {
            proxies.iter().for_each(|proxy| proxy.set(Mode::Reset));
            wait_for("it is cut off", async || !manager.status().connected).await;
            for (number, proxy) in proxies.iter().enumerate() {
                proxy.set(if number == frozen { Mode::Freeze } else { Mode::Pass });
            }
            let began = Instant::now();
            wait_for("it is connected", async || manager.status().connected).await;
            best = best.min(began.elapsed());
        }
        assert!(best < SOON, "member {frozen} frozen: {best:?}");
        let request = manager.lock("k").wait(LONG);
        request.acquire().await.expect("two are well").release().await.expect("it was held");
        proxies[frozen].set(Mode::Pass);
    }
}

/// No member has all clients.
async fn clients_are_spread<P: Member>() {
    let ensemble = Ensemble::<P>::start();
    let proxies: Vec<_> = ensemble.addrs().into_iter().map(Proxy::to).collect();
    let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let mut managers = Vec::new();
    for _ in 0..24 {
        let builder = LockManager::builder().url(ensemble.url_at(&addrs));
        let builder = builder.connect_timeout(LONG).command_timeout(10 * SECOND);
        managers.push(builder.connect().await.expect("connect"));
    }
    for (number, proxy) in proxies.iter().enumerate() {
        // By what they lose: a member that is reset takes the clients along that it had.
        proxy.set(Mode::Reset);
        let lost = async || managers.iter().filter(|manager| !manager.status().connected).count();
        let mut most = 0;
        for _ in 0..20 {
            most = most.max(lost().await);
            sleep(ms(10)).await;
        }
        proxy.set(Mode::Pass);
        assert!(most < managers.len(), "member {number} has all");
        wait_for("all are connected", async || lost().await == 0).await;
    }
}

macro_rules! members {
    ($store:ident, $program:ty) => {
        mod $store {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fd3_a_frozen_member_holds_nobody_up() {
                super::a_frozen_member_holds_nobody_up::<$program>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fd3_a_connection_that_is_lost_is_made_to_another_member() {
                super::a_connection_that_is_lost_is_made_to_another_member::<$program>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fd3_clients_are_spread() {
                super::clients_are_spread::<$program>().await;
            }
        }
    };
}

members!(etcd, distlock_testkit::Etcd);
members!(zookeeper, distlock_testkit::ZooKeeper);

/// A server that answers what it does not understand as one does that expects TLS, or closes.
fn answers_with(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                use std::io::Write as _;
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(bytes);
            });
        }
    });
    addr
}

/// The alert of a server that expects TLS, and its end without a word, are told from a server that is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd6_a_port_that_speaks_tls_is_named() {
    for scheme in ["etcd", "zookeeper"] {
        for alert in [&b"\x15\x03\x01\x00\x02\x02\x46"[..], b"\x15\x03\x03\x00\x02\x02\x0a", b""] {
            let url = format!("{scheme}://u:hunter2@{}", answers_with(alert));
            let builder = LockManager::builder().url(&url).connect_timeout(10 * SECOND);
            let error = builder.connect().await.expect_err("it does not speak our language");
            let text = whole_text(&error);
            assert!(matches!(error, LockError::Backend { .. }), "{text}");
            assert!(
                text.contains("TLS") && !text.contains("hunter2"),
                "{scheme} {alert:?}: {text}"
            );
        }
    }
}

/// The same of a real etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd6_an_etcd_with_tls_is_named() {
    let authority = distlock_testkit::Certificates::new();
    let server =
        distlock_testkit::EtcdServer::start_tls(&authority.issue("etcd", &["IP:127.0.0.1"]));
    let error = distlock_testkit::patient_builder(&server.url()).connect().await;
    let text = whole_text(&error.expect_err("it speaks TLS"));
    assert!(text.contains("TLS"), "{text}");
}
