//! B: the network is cut, slow, or lies about which peer is still there.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockManager, WakeUps};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, assert_lost, backend, connections, info, ms, owner, patient,
    patient_builder, runs, stored, wait_for, wait_until, wait_within, whole_text,
};
use tokio::task::JoinSet;

use crate::support::{
    BACK, COMMAND_TIMEOUT, Ledger, Watch, connected, freed, impatient, impatient_builder, in_time,
    renewed, works_again,
};

async fn behind_a_proxy() -> (RedisServer, Proxy, LockManager) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = impatient(&proxy.url()).await;
    (server, proxy, manager)
}

/// The holder is cut off while its body runs; another process gets the lock in time. What the
/// holder sent, and what arrives of it late, does not touch it.
async fn cut_off(fault: Mode) {
    let (server, proxy, manager) = behind_a_proxy().await;
    let rival = patient(&server.url()).await;
    let watch = Watch::default();
    let call = async {
        let request = manager.lock("k").ttl(ms(3000)).wait(LONG);
        let result = request.run(watch.endless(&manager, "k")).await;
        watch.ended_in_time();
        assert_lost(result);
    };
    let next = async {
        watch.renewed().await;
        proxy.set(fault);
        let guard = rival.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("its turn comes");
        watch.rival_has_it();
        guard
    };
    let ((), guard) = tokio::join!(call, next);
    let token = owner(&server, "k");
    proxy.set(Mode::Pass);
    let again = async || manager.lock("again").acquire().await.is_ok();
    wait_for("the holder is back", again).await;
    // Everything it had sent has run by now.
    assert_eq!(owner(&server, "k"), token);
    assert!(guard.is_held());
    guard.release().await.expect("it is held to the end");
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn b1_cut_off_both_ways_the_body_stops_at_its_deadline() {
    cut_off(Mode::Freeze).await;
}

/// Body, timer and engine are all due when the thread comes back: the clock must be looked at first.
#[tokio::test]
async fn b1_cut_off_a_thread_that_was_blocked_past_the_deadline_does_not_go_on() {
    let (server, proxy, manager) = behind_a_proxy().await;
    let watch = Watch::default();
    let call = async {
        let request = manager.lock("k").ttl(ms(3000)).wait(LONG);
        let result = request.run(watch.endless(&manager, "k")).await;
        watch.ended_in_time();
        assert_lost(result);
    };
    let block = async {
        watch.polled(10).await;
        proxy.set(Mode::Freeze);
        thread::sleep(ms(4000));
    };
    tokio::join!(call, block);
    proxy.set(Mode::Pass);
    works_again(&manager, &server).await;
}

/// Fault: F7.
#[tokio::test]
async fn b2_without_answers_the_body_stops_at_its_deadline() {
    cut_off(Mode::DropDown).await;
}

#[tokio::test]
async fn b2_a_grant_whose_answer_is_lost_is_given_back() {
    let (server, proxy, manager) = behind_a_proxy().await;
    let sets = runs(&server, "set");
    proxy.set(Mode::DropDown);
    let requests = (0..5).map(|n| manager.lock(n.to_string()).ttl(LONG).acquire());
    for call in requests.map(tokio::spawn).collect::<Vec<_>>() {
        assert_eq!(backend(call.await.expect("no panic")), BackendKind::TimedOut);
    }
    wait_until("they were granted, and nobody heard of it", || runs(&server, "set") >= sets + 5);
    proxy.set(Mode::Pass);
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn b3_unheard_the_body_stops_at_its_deadline() {
    cut_off(Mode::DropUp).await;
}

/// A peer that vanished without a word: the connection is left, and what is held goes on.
#[tokio::test]
async fn b4_a_half_open_connection_is_left_and_the_lock_is_kept() {
    let (server, proxy, manager) = behind_a_proxy().await;
    let request = manager.lock("held").ttl(ms(6000)).wait(LONG);
    let guard = request.acquire().await.expect("granted");
    let token = owner(&server, "held");
    renewed(&guard).await;
    // For commands, for renewals, and for wake-ups.
    wait_for("all are there", async || connections(&server) == 3).await;
    proxy.set(Mode::FreezeExisting);
    let other = manager.lock("other").ttl(LONG).wait(LONG).acquire().await;
    freed(other.expect("on a new connection")).await;
    renewed(&guard).await;
    assert_eq!(owner(&server, "held"), token);
    freed(guard).await;
    works_again(&manager, &server).await;
    proxy.set(Mode::Pass);
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn b5_a_lease_is_counted_from_before_its_command_was_sent() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = patient(&proxy.url()).await;
    let (ttl, delay) = (ms(3000), ms(150));
    proxy.set(Mode::Delay(delay));
    let guard = manager.lock("k").ttl(ttl).wait(LONG).acquire().await.expect("granted");
    let remaining = guard.remaining();
    assert!(remaining <= ttl - 2 * delay, "{remaining:?} left of a lease that old");
    renewed(&guard).await;
    assert!(guard.remaining() <= ttl - 2 * delay, "{:?} left", guard.remaining());
    guard.extend(2 * ttl).await.expect("it is held");
    assert!(guard.remaining() <= 2 * ttl - 2 * delay, "{:?} left", guard.remaining());
    guard.release().await.expect("it is held to the end");
}

#[tokio::test]
async fn b5_no_update_is_lost_while_the_delay_changes() {
    let server = RedisServer::start();
    let proxies = [Proxy::to(server.addr()), Proxy::to(server.addr())];
    let (ledger, over) = (Arc::new(Ledger::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for proxy in &proxies {
        let manager = connected(LockManager::builder().url(proxy.url())).await;
        for _ in 0..3 {
            let (manager, ledger, over) = (manager.clone(), ledger.clone(), over.clone());
            tasks.spawn(async move {
                while !over.load(SeqCst) {
                    // Sometimes over before its answer is there.
                    let request = manager.lock("k").ttl(ms(250)).wait(ms(2000));
                    let _ = request.run(ledger.add_one()).await;
                }
            });
        }
    }
    let mut round = 0;
    wait_for("updates go on", async || {
        round += 1;
        for (n, proxy) in proxies.iter().enumerate() {
            let delay = [0, 60, 20, 90, 130, 5, 40][(round + 3 * n) % 7];
            proxy.set(Mode::Delay(ms(delay)));
        }
        tokio::time::sleep(ms(30)).await;
        ledger.written() >= 40
    })
    .await;
    over.store(true, SeqCst);
    proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    ledger.nothing_was_lost();
    wait_until("no key is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn b6_a_lease_shorter_than_the_way_to_the_server_is_never_granted() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = patient(&proxy.url()).await;
    proxy.set(Mode::Delay(ms(100)));
    for wait in [Duration::ZERO, ms(1500)] {
        // Only a release does this, and only where it finds the lock expired, as all do here.
        let (granted, given_back) = (runs(&server, "set"), runs(&server, "zpopmin"));
        let error = manager.lock("k").ttl(ms(100)).wait(wait).run(async {
            panic!("the body of a lock that was over before it was known");
        });
        let error = error.await.expect_err("over before it was known");
        // The last try of a wait may be over before its answer.
        assert!(whole_text(&error).contains("ttl") || !wait.is_zero(), "{error:?}");
        assert_eq!(backend::<()>(Err(error)), BackendKind::TimedOut);
        assert!(runs(&server, "set") > granted);
        wait_until("it is given back", || runs(&server, "zpopmin") > given_back);
    }
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn b7_an_answer_torn_at_any_byte_leaves_nothing() {
    // More than the answers to an acquire and its release are long.
    const LONGER: usize = 80;
    let (server, proxy, manager) = behind_a_proxy().await;
    let mut torn = 0;
    for bytes in 0..LONGER {
        wait_for("the manager has a connection", async || {
            let Ok(guard) = manager.lock("k").acquire().await else { return false };
            guard.release().await.is_ok()
        })
        .await;
        proxy.set(Mode::CutDown(bytes));
        let request = manager.lock(format!("torn-{bytes}")).ttl(LONG);
        match request.acquire().await {
            Ok(guard) => drop(guard.release().await),
            Err(error) => {
                torn += 1;
                let kind = backend::<()>(Err(error));
                assert!(matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut));
            }
        }
        proxy.set(Mode::Pass);
    }
    assert!(torn > 10 && torn < LONGER, "{torn} answers were torn");
    works_again(&manager, &server).await;
}

/// What was sent on a connection that then falls silent arrives seconds later; `meanwhile` happens
/// in between.
async fn late_bytes<T>(
    server: &RedisServer,
    manager: &LockManager,
    proxy: &Proxy,
    meanwhile: impl Future<Output = T>,
) -> T {
    proxy.set(Mode::FreezeExisting);
    let late = manager.lock("late").ttl(LONG).acquire();
    let early = tokio::time::timeout(COMMAND_TIMEOUT / 4, late).await;
    assert!(!matches!(early, Ok(Ok(_))), "granted without an answer");
    let start = Instant::now();
    let out = meanwhile.await;
    // Longer than anything is repeated for.
    tokio::time::sleep(ms(5000).saturating_sub(start.elapsed())).await;
    let before = owner(server, "late");
    proxy.set(Mode::Pass);
    works_again_beside(manager, server, before.is_some()).await;
    assert_eq!(owner(server, "late"), before);
    out
}

async fn works_again_beside(manager: &LockManager, server: &RedisServer, held: bool) {
    let again = async || manager.lock("again").ttl(LONG).acquire().await.is_ok();
    wait_for("the manager works again", again).await;
    wait_within(BACK, "nothing but what is held is left", || {
        let keys = server.lock_keys();
        keys.is_empty() || (held && keys == [stored("late")])
    });
}

/// The release of what was given up stands behind it on the same connection.
#[tokio::test]
async fn b8_an_acquire_that_arrives_late_is_followed_by_its_release() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    // So patient that the connection is never left.
    let builder = LockManager::builder().url(proxy.url()).command_timeout(LONG);
    let manager = builder.connect().await.expect("connect");
    late_bytes(&server, &manager, &proxy, async {}).await;
    assert!(server.lock_keys().is_empty());
}

/// The connection is left for another, on which the lock is taken: what arrives on the old one must not
/// win, nor free it. With and without the right to close the old one.
#[tokio::test]
async fn b8_an_acquire_that_arrives_late_does_not_touch_the_next_holder() {
    for rights in ["+@all", "+@all -client"] {
        let server = RedisServer::start();
        let rule = format!("ACL SETUSER app on nopass ~* &* {rights}");
        server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
        let proxy = Proxy::to(server.addr());
        let manager = impatient(&format!("redis://app:any@{}", proxy.addr())).await;
        let guard = late_bytes(&server, &manager, &proxy, async {
            let request = manager.lock("late").ttl(LONG).wait(LONG);
            request.acquire().await.expect("on a new connection")
        })
        .await;
        assert!(guard.is_held());
        freed(guard).await;
        works_again(&manager, &server).await;
    }
}

/// A network that keeps the next thing a client sends until it is asked to hand it on, and loses
/// everything behind it on that connection.
struct Late {
    addr: SocketAddr,
    hold: Arc<AtomicBool>,
    kept: Arc<AtomicBool>,
    /// New connections end at once.
    shut: Arc<AtomicBool>,
}

impl Late {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let addr = listener.local_addr().expect("an address");
        let [hold, kept, shut] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
        let (flags, is_shut) = ((hold.clone(), kept.clone()), shut.clone());
        // It ends with the test's process.
        thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                if is_shut.load(SeqCst) {
                    continue;
                }
                let mut server = TcpStream::connect(server).expect("the server is there");
                let mut down =
                    (server.try_clone().expect("a handle"), client.try_clone().expect("one"));
                thread::spawn(move || std::io::copy(&mut down.0, &mut down.1));
                let (hold, kept) = flags.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 16 * 1024];
                    while let Ok(n @ 1..) = client.read(&mut bytes) {
                        let wanted = bytes[..n].windows(3).any(|word| word == b"SET");
                        let late = wanted && hold.load(SeqCst) && !kept.swap(true, SeqCst);
                        while late && hold.load(SeqCst) {
                            thread::sleep(ms(1));
                        }
                        if server.write_all(&bytes[..n]).is_err() || late {
                            break;
                        }
                    }
                    // The server is left alone with what it has.
                    thread::sleep(LONG);
                });
            }
        });
        Self { addr, hold, kept, shut }
    }
}

/// The connection was left with a forgotten acquire on it: it is freed again although the lock was not
/// there when it was released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_an_acquire_that_arrives_after_its_release_is_freed_again() {
    let server = RedisServer::start();
    server.cli::<()>(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-client"]);
    let network = Late::before(server.addr());
    let manager = impatient(&format!("redis://app:any@{}", network.addr)).await;
    works_again(&manager, &server).await;
    network.hold.store(true, SeqCst);
    let late = manager.lock("late").ttl(LONG).acquire().await;
    assert_eq!(backend(late), BackendKind::TimedOut);
    wait_until("it is kept", || network.kept.load(SeqCst));
    // It was left, and the release has found nothing on the new one.
    wait_for("the manager works again", async || manager.lock("k").acquire().await.is_ok()).await;
    tokio::time::sleep(ms(300)).await;
    let sets = runs(&server, "set");
    network.hold.store(false, SeqCst);
    wait_until("the acquire has arrived", || runs(&server, "set") > sets);
    wait_within(BACK, "it is freed", || server.lock_keys().is_empty());
}

/// No release gets through until the lock should long have expired by itself; but its ttl counts from
/// where the acquire has run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_an_acquire_that_arrives_after_its_ttl_is_freed() {
    let server = RedisServer::start();
    let network = Late::before(server.addr());
    let manager = impatient(&format!("redis://{}", network.addr)).await;
    wait_for("it is notified", async || manager.status().wake_ups == WakeUps::Notified).await;
    let (ttl, sets) = (ms(1000), runs(&server, "set"));
    network.shut.store(true, SeqCst);
    network.hold.store(true, SeqCst);
    backend(manager.lock("late").ttl(ttl).acquire().await);
    wait_until("it is kept", || network.kept.load(SeqCst));
    // It should be gone by now, and the last try that began before that is over.
    tokio::time::sleep(ttl + ms(1500)).await;
    network.hold.store(false, SeqCst);
    wait_until("the acquire has arrived", || runs(&server, "set") > sets);
    // From here on only a release ends it.
    server.cli::<i64>(&["PERSIST", &stored("late")]);
    network.shut.store(false, SeqCst);
    wait_within(BACK, "it is freed", || server.lock_keys().is_empty());
}

/// Every connection is accepted and closed, and counted.
struct Doorman {
    opened: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    listener: TcpListener,
}

impl Doorman {
    fn at(listener: TcpListener) -> Self {
        let (opened, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let door = listener.try_clone().expect("clone a socket");
        thread::spawn({
            let (opened, over) = (opened.clone(), over.clone());
            move || {
                while !over.load(SeqCst) {
                    drop(door.accept());
                    opened.fetch_add(1, SeqCst);
                }
            }
        });
        Self { opened, over, listener }
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let addr = self.listener.local_addr().expect("an address");
        let _ = std::net::TcpStream::connect(addr);
    }
}

#[tokio::test]
async fn b9_a_server_that_is_gone_ends_every_call_in_time_and_is_not_hammered() {
    let mut server = RedisServer::start();
    let manager = connected(impatient_builder(&server.url()).connect_timeout(LONG)).await;
    server.kill9();
    // It is refused at first.
    backend(in_time(Duration::ZERO, manager.lock("k").acquire()).await);

    let doorman = Doorman::at(TcpListener::bind(server.addr()).expect("nobody else has it"));
    wait_until("it knocks", || doorman.opened.load(SeqCst) > 0);
    let mut calls = JoinSet::new();
    for n in 0..1000_u32 {
        let wait = if n % 2 == 0 { Duration::ZERO } else { 2 * COMMAND_TIMEOUT };
        let request = manager.lock(n.to_string()).wait(wait);
        calls.spawn(async move {
            let call = request.run(async { panic!("a body without its lock") });
            let kind = backend::<()>(in_time(wait, call).await);
            assert!(matches!(kind, BackendKind::TimedOut | BackendKind::Unreachable), "{kind:?}");
        });
    }
    while let Some(call) = calls.join_next().await {
        call.expect("it ends in time");
    }
    let opened = doorman.opened.load(SeqCst);
    assert!(opened < 100, "{opened} connections for 1000 calls");
    drop(doorman);
    let server = server.blocking(RedisServer::restart).await;
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn b10_a_server_that_accepts_and_never_answers_ends_every_call_in_time() {
    // The kernel accepts for a listener that does not.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let connecting = impatient_builder(&url).connect_timeout(ms(300)).connect();
    assert_eq!(backend(in_time(ms(300), connecting).await), BackendKind::TimedOut);

    let manager = impatient_builder(&url).connect_timeout(ms(300)).build().expect("lazy");
    for wait in [Duration::ZERO, 2 * COMMAND_TIMEOUT] {
        let call = manager.lock("k").wait(wait).run(async { panic!("a body without its lock") });
        assert_eq!(backend::<()>(in_time(wait, call).await), BackendKind::TimedOut);
    }

    // One that comes to itself is found.
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    proxy.set(Mode::Freeze);
    let manager = impatient_builder(&proxy.url()).connect_timeout(ms(300)).build().expect("lazy");
    assert_eq!(backend(manager.lock("k").acquire().await), BackendKind::TimedOut);
    proxy.set(Mode::Pass);
    works_again(&manager, &server).await;
}

/// To the server every manager is a process.
#[tokio::test]
async fn b12_a_server_that_is_back_gets_three_connections_a_process() {
    const PROCESSES: usize = 40;
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..PROCESSES {
        managers.push(patient(&server.url()).await);
    }
    let server = server.blocking(RedisServer::restart_empty).await;
    let mut calls = JoinSet::new();
    for (n, manager) in managers.iter().enumerate() {
        for lock in 0..10 {
            // Renewed as well: the second connection.
            let request = manager.lock(format!("{n}-{lock}")).ttl(ms(6000)).wait(LONG);
            calls.spawn(async move { request.acquire().await.expect("granted") });
        }
    }
    let mut guards = Vec::new();
    while let Some(guard) = calls.join_next().await {
        guards.push(guard.expect("no panic"));
    }
    // Read before this test's own looks count.
    let made = info(&server, "total_connections_received");
    assert!(made < 5 * PROCESSES as u64, "{made} connections for {PROCESSES} processes");
    wait_for("all are renewed", async || runs(&server, "pexpire") >= guards.len() as u64).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert!(connections(&server) <= 3 * PROCESSES, "{}", connections(&server));
    assert_eq!(info(&server, "rejected_connections"), 0);
    drop(guards);
    wait_within(BACK, "no key is left", || server.lock_keys().is_empty());
}

#[tokio::test]
async fn b13_a_server_with_too_many_clients_is_waited_for() {
    let server = RedisServer::start();
    let mut only = server.eye();
    let mut limit = |clients: u32| {
        let mut config = redis::cmd("CONFIG");
        config.arg("SET").arg("maxclients").arg(clients).query::<()>(&mut only).expect("set");
    };
    limit(1);
    assert_eq!(backend(impatient_builder(&server.url()).connect().await), BackendKind::Unreachable);
    let manager = patient_builder(&server.url()).build().expect("lazy");
    assert_eq!(backend(manager.lock("k").acquire().await), BackendKind::Unreachable);
    let waiter = tokio::spawn(manager.lock("k").ttl(LONG).wait(LONG).acquire());
    tokio::task::yield_now().await;
    limit(100);
    let guard = waiter.await.expect("no panic").expect("granted as soon as it is let in");
    guard.release().await.expect("it was held");
    works_again(&manager, &server).await;
}
