//! Fifty tests, each with a runtime of its own that is gone at its end, share the process-wide
//! manager: it must not live on any of them.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::{LockError, LockManager, redis_lock};
use distlock_testkit::RedisServer;

/// Never dropped; the test kit sees to it that it ends with this process.
static SERVER: LazyLock<RedisServer> = LazyLock::new(|| {
    let server = RedisServer::start();
    let manager = LockManager::connect_lazy(server.url()).expect("a URL");
    distlock::init(manager).expect("the only one");
    server
});

/// What one manager opens: a connection for commands, one for renewals, which a batch that hands a
/// lock on may need at any time, and one that is subscribed.
const MANAGER: usize = 3;

static INSIDE: AtomicBool = AtomicBool::new(false);
static TURNS: AtomicU32 = AtomicU32::new(0);

/// A key that all fifty want.
#[redis_lock(key = "shared", ttl = "10s", wait = "2m")]
async fn alone() -> Result<(), LockError> {
    assert!(!INSIDE.swap(true, Ordering::SeqCst), "two bodies at once");
    let turns = TURNS.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(1)).await;
    TURNS.store(turns + 1, Ordering::SeqCst);
    INSIDE.store(false, Ordering::SeqCst);
    Ok(())
}

/// A key that only one of them wants: nothing is in its way.
#[redis_lock(key = "own:{name}", ttl = "10s")]
async fn own(name: &str) -> Result<bool, LockError> {
    let key = format!("distlock:lock:{{own:{name}}}");
    Ok(SERVER.lock_keys().contains(&key))
}

async fn work(name: &str) {
    LazyLock::force(&SERVER);
    for _ in 0..5 {
        let before = TURNS.load(Ordering::SeqCst);
        alone().await.expect("its turn comes");
        assert!(TURNS.load(Ordering::SeqCst) > before, "a turn was lost");
        assert!(own(name).await.expect("nobody is in the way"), "the body ran without its lock");
    }
    let connections = connections();
    assert!(connections <= MANAGER, "the manager is not shared: {connections} connections");
}

/// Connections of managers, over TCP; the tests' own go over the unix socket.
fn connections() -> usize {
    let clients: String = SERVER.cli(&["CLIENT", "LIST"]);
    clients.lines().filter(|client| client.contains("addr=127.0.0.1:")).count()
}

macro_rules! tests {
    ($flavor:literal: $($name:ident)*) => { $(
        #[tokio::test(flavor = $flavor)]
        async fn $name() {
            work(stringify!($name)).await;
        }
    )* };
}

tests! { "current_thread":
    c01 c02 c03 c04 c05 c06 c07 c08 c09 c10 c11 c12 c13 c14 c15 c16 c17 c18 c19 c20 c21 c22 c23 c24 c25
}

tests! { "multi_thread":
    m01 m02 m03 m04 m05 m06 m07 m08 m09 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25
}
