//! A server that runs scripts, but refuses some of ours.

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{
    Cluster, LONG, Proxy, Quorum, RedisServer, Refusal, backend, nothing_is_left, patient,
    patient_builder, wait_until, whole_text,
};

/// What the proxy of a large provider says.
const WORDS: &str = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using \
    the KEYS array, and KEYS should not be in expression";

/// The first line of each script's own part, by the script's name.
const SCRIPTS: [(&str, &str); 10] = [
    ("acquire", include_str!("../../distlock-redis/src/lua/confirm.lua")),
    ("share", include_str!("../../distlock-redis/src/lua/share.lua")),
    ("renew", include_str!("../../distlock-redis/src/lua/renew.lua")),
    ("prolong", include_str!("../../distlock-redis/src/lua/prolong.lua")),
    ("downgrade", include_str!("../../distlock-redis/src/lua/downgrade.lua")),
    ("offer", include_str!("../../distlock-redis/src/lua/offer.lua")),
    ("free_lock", include_str!("../../distlock-redis/src/lua/free_lock.lua")),
    ("leave_lock", include_str!("../../distlock-redis/src/lua/leave_lock.lua")),
    ("release", include_str!("../../distlock-redis/src/lua/free.lua")),
    ("leave", include_str!("../../distlock-redis/src/lua/leave.lua")),
];

fn refusal(script: &str) -> Refusal {
    let line = script.lines().find(|line| !line.is_empty()).expect("a line");
    Refusal::of([line], WORDS)
}

#[track_caller]
fn is_refused<T>(result: Result<T, LockError>, script: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{script} is refused"));
    let says = whole_text(&error);
    assert!(says.contains(&WORDS["ERR ".len()..]), "{script}: {says}");
    assert!(says.contains("script_check_enable"), "{script}: {says}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Other, "{script}");
}

/// Connects, and tries a lock with a manager that has not connected.
async fn both_are_refused(url: &str, script: &str) {
    is_refused(patient_builder(url).connect().await, script);
    let lazy: LockManager = patient_builder(url).build().expect("lazy");
    is_refused(lazy.lock("k").acquire().await, script);
    lazy.close(LONG).await;
}

/// Fault: FS1.
#[tokio::test]
async fn whichever_script_a_server_refuses_it_is_refused_in_its_own_words() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    for (name, script) in SCRIPTS {
        server.cli::<()>(&["SCRIPT", "FLUSH"]);
        proxy.refuse(Some(refusal(script)));
        both_are_refused(&proxy.url(), name).await;
        wait_until("nothing is left", || server.held_locks().is_empty());
    }
    proxy.refuse(None);
    let manager = patient(&proxy.url()).await;
    drop(manager.lock("k").acquire().await.expect("granted"));
    nothing_is_left(&server);
}

/// Fault: FS1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_that_refuses_a_script_is_refused() {
    let start = || Cluster::builder(2).proxied().start();
    let cluster = tokio::task::spawn_blocking(start).await.expect("it starts");
    let manager = patient(&cluster.url()).await;
    for node in 0..2 {
        drop(manager.lock(&*cluster.key_at(node)).acquire().await.expect("granted"));
    }
    manager.close(LONG).await;
    (0..2).for_each(|node| cluster.node(node).cli::<()>(&["SCRIPT", "FLUSH"]));
    let (name, script) = SCRIPTS[7];
    (0..2).for_each(|node| cluster.proxy(node).refuse(Some(refusal(script))));
    is_refused(patient_builder(&cluster.url()).connect().await, name);
    // And by the one node that refuses it, whichever it is.
    cluster.proxy(0).refuse(None);
    let lazy = patient_builder(&cluster.url()).build().expect("lazy");
    drop(lazy.lock(&*cluster.key_at(0)).acquire().await.expect("granted"));
    is_refused(lazy.lock(&*cluster.key_at(1)).acquire().await, name);
}

/// Fault: FS1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_quorum_that_refuses_a_script_is_refused() {
    let quorum = tokio::task::spawn_blocking(|| Quorum::of(3)).await.expect("they start");
    let proxies: Vec<_> = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
    let (name, script) = SCRIPTS[5];
    proxies[1].refuse(Some(refusal(script)));
    let url = Quorum::url_over(proxies.iter().map(Proxy::addr), "guard=0s");
    is_refused(patient_builder(&url).connect().await, name);
    proxies.iter().for_each(|proxy| proxy.refuse(Some(refusal(script))));
    // The proxies know a script by its text only.
    quorum.nodes.iter().for_each(|node| node.cli::<()>(&["SCRIPT", "FLUSH"]));
    let lazy = patient_builder(&url).build().expect("lazy");
    is_refused(lazy.lock("k").acquire().await, name);
}
