//! A URL of the wrong kind for its server: refused at the start, with the right one.

use std::time::Instant;

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{LONG, RedisServer, SECOND, backend, ms, patient_builder, whole_text};

/// What `connect` and a lock of a lazy manager fail with; at once, and without the password.
async fn refused(url: &str, kind: BackendKind, mend: &str) {
    let lazy = patient_builder(url).build().expect("no I/O yet");
    let begun = Instant::now();
    let error = patient_builder(url).connect().await.expect_err("it must be refused");
    let took = begun.elapsed();
    let later = lazy.lock("k").ttl(LONG).acquire().await.expect_err("so is a lock");
    for error in [error, later] {
        let text = whole_text(&error);
        assert!(text.contains(mend), "{mend:?} is not in: {text}");
        assert!(!text.contains("hush"), "{text}");
        assert_eq!(backend::<()>(Err(error)), kind, "{text}");
    }
    assert!(took < 10 * SECOND, "only after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_and_its_primary_asked_for() {
    let primary = RedisServer::builder().password("hush-hush").start();
    let port = primary.addr().port().to_string();
    let replica = RedisServer::builder()
        .password("hush-hush")
        .args(["--replicaof", "127.0.0.1", &port, "--masterauth", "hush-hush"])
        .start();
    refused(&replica.url(), BackendKind::ReadOnly, "name its primary").await;
    // Until it is promoted: no process has to be restarted.
    let manager = LockManager::connect_lazy(replica.url()).expect("a URL");
    let waits = tokio::spawn(manager.lock("k").ttl(LONG).wait(LONG).acquire());
    tokio::time::sleep(ms(300)).await;
    assert!(!waits.is_finished() && !manager.status().connected);
    replica.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
    waits.await.expect("no panic").expect("it is a primary now").release().await.expect("held");
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    let server =
        RedisServer::builder().password("hush-hush").args(["--cluster-enabled", "yes"]).start();
    refused(&server.url(), BackendKind::Other, "redis-cluster://").await;
}

#[tokio::test]
async fn what_the_server_is_shows_in_debug() {
    let server = RedisServer::builder().password("hush-hush").start();
    let manager = LockManager::connect(&server.url()).await.expect("connect");
    let text = format!("{manager:?}");
    let version: String = server.cli(&["INFO", "server"]);
    // Valkey says there which Redis it is like.
    let field = |name| version.lines().find_map(|line: &str| line.strip_prefix(name));
    let version = field("valkey_version:").or_else(|| field("redis_version:"));
    let version = version.expect("a version").trim();
    assert!(text.contains(version) && text.contains("primary"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}

/// A wrong URL is found when the manager is made.
#[test]
fn a_wrong_number_of_nodes_or_a_node_listed_twice_is_refused_at_once() {
    for (url, mend) in [
        ("redis://:hush@a,b", "redis-sentinel://"),
        ("redis-cluster://:hush@a,a:6379", "host 2 is host 1 once more"),
        ("redlock://:hush@a,b", "three"),
        ("redis-sentinel://:hush@a", "name of the primary"),
    ] {
        let error = LockManager::connect_lazy(url).expect_err("it cannot be used");
        let text = whole_text(&error);
        assert!(matches!(error, LockError::InvalidOption { .. }), "{text}");
        assert!(text.contains(mend) && !text.contains("hush"), "{text}");
    }
}
