//! The store is down, silent or unwilling: calls end in time with an error that says so and gives
//! nothing away, bodies do not run, and when the store is back everything works and nothing is left.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockManager, redis_lock};
use distlock_testkit::{Mode, Proxy, RedisServer, connect, wait_for, wait_until, whole_text};

use crate::support::connected;

const PASSWORD: &str = "hunter2-correct-horse";
const WHO: &str = "alice@example.org";
const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(400);
/// For the 50 ms that a call may take longer than it says; less than any default wait.
const ROOM: Duration = Duration::from_millis(5000);
/// Ten times the second in which a manager finds a server that is back.
const BACK: Duration = Duration::from_secs(10);

struct Client {
    manager: LockManager,
    bodies: AtomicU32,
}

impl Client {
    async fn connect(url: &str) -> Self {
        let builder = LockManager::builder().url(url).command_timeout(COMMAND_TIMEOUT);
        Self { manager: connected(builder).await, bodies: AtomicU32::new(0) }
    }

    /// For a server that answers, however busy the machine is.
    async fn patient(url: &str) -> Self {
        Self { manager: connect(url).await, bodies: AtomicU32::new(0) }
    }

    #[redis_lock(key = "user:{who}", ttl = "1m", manager = self.manager)]
    async fn at_once(&self, who: &str) -> Result<(), LockError> {
        self.bodies.fetch_add(1, SeqCst);
        Ok(())
    }

    #[redis_lock(key = "user:{who}", ttl = "1m", wait = "400ms", manager = self.manager)]
    async fn patiently(&self, who: &str) -> Result<(), LockError> {
        self.bodies.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Both calls fail in time, and neither runs its body.
    async fn fails_in_time(&self) {
        let before = self.bodies.load(SeqCst);
        let start = Instant::now();
        let error = self.at_once(WHO).await.expect_err("no store, no lock");
        backend(&error);
        assert!(start.elapsed() < COMMAND_TIMEOUT + ROOM, "after {:?}: {error}", start.elapsed());

        let start = Instant::now();
        let error = self.patiently(WHO).await.expect_err("no store, no lock");
        backend(&error);
        assert!(start.elapsed() < WAIT + ROOM, "after {:?}: {error}", start.elapsed());
        assert_eq!(self.bodies.load(SeqCst), before, "a body ran without its lock");
    }

    /// The server is found again, and nothing is left of the calls that failed.
    async fn works_again(&self, server: &RedisServer) {
        let back = Instant::now();
        // Another key: what was given up may hold the first one until it is given back.
        wait_for("the manager works again", async || self.at_once("bob").await.is_ok()).await;
        assert!(back.elapsed() < BACK, "found the server after {:?}", back.elapsed());
        wait_until("no key is left", || server.lock_keys().is_empty());
        let report = self.manager.close(BACK).await;
        assert!(report.is_complete(), "{report:?}");
        assert!(server.lock_keys().is_empty());
    }
}

#[track_caller]
fn backend(error: &LockError) -> BackendKind {
    let text = whole_text(error);
    assert!(!text.contains(PASSWORD) && !text.contains(WHO), "says too much: {text}");
    match error {
        LockError::Backend { kind, .. } => *kind,
        _ => panic!("not a failure of the store: {text}"),
    }
}

/// Fault: B9.
#[tokio::test]
async fn server_killed_and_started_again() {
    let mut server = RedisServer::builder().password(PASSWORD).start();
    let client = Client::connect(&server.url()).await;
    server.kill9();
    client.fails_in_time().await;
    server.restart();
    client.works_again(&server).await;
}

/// Fault: A3.
#[tokio::test]
async fn server_stopped_and_continued() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let client = Client::connect(&server.url()).await;
    server.stop();
    client.fails_in_time().await;
    // What was sent meanwhile is carried out now, and given back by what was sent behind it.
    server.cont();
    client.works_again(&server).await;
}

/// Fault: B7.
#[tokio::test]
async fn network_silent_lossy_or_broken() {
    for fault in [Mode::Freeze, Mode::DropUp, Mode::DropDown, Mode::Reset] {
        let server = RedisServer::builder().password(PASSWORD).start();
        let proxy = Proxy::to(server.addr());
        let client = Client::connect(&server.url_at(proxy.addr())).await;
        proxy.set(fault);
        client.fails_in_time().await;
        proxy.set(Mode::Pass);
        client.works_again(&server).await;
    }
}

/// A connection that is dead without saying so is left for a new one; its bytes, when they arrive
/// after all, leave nothing.
/// Fault: B4.
#[tokio::test]
async fn connection_silent_for_ever() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let proxy = Proxy::to(server.addr());
    let client = Client::connect(&server.url_at(proxy.addr())).await;
    proxy.set(Mode::FreezeExisting);
    backend(&client.at_once(WHO).await.expect_err("no answer, no lock"));
    client.works_again(&server).await;
    proxy.set(Mode::Pass);
    wait_until("no key is left", || server.lock_keys().is_empty());
}

/// When the store is silent, only the holder's clock can say that the lease is over.
/// Fault: B1.
#[tokio::test]
async fn lease_ends_by_the_clock_when_the_store_is_silent() {
    let server = RedisServer::start();
    let client = Client::patient(&server.url()).await;
    let request = client.manager.lock("held").ttl(Duration::from_secs(2));
    let lost = request
        .run(async {
            server.stop();
            tokio::time::sleep(BACK).await;
        })
        .await
        .expect_err("stopped long before");
    assert!(lost.is_lost(), "{lost:?}");
    server.cont();
    client.works_again(&server).await;
}

/// Fault: B9.
#[tokio::test]
async fn server_that_was_never_there() {
    let mut server = RedisServer::start();
    server.kill9();
    let error = LockManager::connect(&server.url()).await.expect_err("nobody listens");
    assert_eq!(backend(&error), BackendKind::Unreachable);
    let manager = LockManager::connect_lazy(server.url()).expect("a URL");
    let error = manager.lock("k").acquire().await.expect_err("nobody listens");
    backend(&error);
    server.restart();
    wait_for("the manager finds it", async || manager.lock("k").acquire().await.is_ok()).await;
}

/// Fault: C6.
#[tokio::test]
async fn wrong_password() {
    let server = RedisServer::builder().password("another").start();
    let url = server.url().replace("another", PASSWORD);
    let error = LockManager::connect(&url).await.expect_err("the wrong password");
    assert_eq!(backend(&error), BackendKind::Refused);
    let manager = LockManager::connect_lazy(&url).expect("a URL");
    let error = manager.lock("k").acquire().await.expect_err("the wrong password");
    assert_eq!(backend(&error), BackendKind::Refused);
}

/// Fault: C5.
#[tokio::test]
async fn no_permission() {
    let server = RedisServer::start();
    let rule = format!("ACL SETUSER app on >{PASSWORD} ~distlock:* +@all -set");
    server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
    let url = format!("redis://app:{PASSWORD}@{}", server.addr());
    let error = LockManager::connect(&url).await.expect_err("SET is forbidden");
    assert_eq!(backend(&error), BackendKind::Refused);
    let manager = LockManager::connect_lazy(&url).expect("a URL");
    let error = manager.lock("k").acquire().await.expect_err("SET is forbidden");
    assert_eq!(backend(&error), BackendKind::Refused);
}

/// No new lock, but what is held can be given back.
/// Fault: C1.
#[tokio::test]
async fn server_out_of_memory() {
    let server = RedisServer::start();
    let client = Client::patient(&server.url()).await;
    let guard = client.manager.lock("held").acquire().await.expect("granted");
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = client.at_once(WHO).await.expect_err("no memory");
    assert_eq!(backend(&error), BackendKind::OutOfMemory);
    guard.release().await.expect("it was held");
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    client.works_again(&server).await;
}

/// Fault: D3.
#[tokio::test]
async fn server_that_became_a_replica() {
    let (server, primary) = (RedisServer::start(), RedisServer::start());
    let client = Client::patient(&server.url()).await;
    let port = primary.addr().port().to_string();
    server.cli::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    let error = client.at_once(WHO).await.expect_err("a replica takes no writes");
    assert_eq!(backend(&error), BackendKind::ReadOnly);
    server.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
    client.works_again(&server).await;
}
