//! The rights that the guide lists for each deployment are enough, and nothing else is asked for.

use std::collections::HashMap;

use distlock::LockManager;
use distlock_testkit::{
    Cluster, LONG, Quorum, RedisServer, Sentinels, connect, served, wait_for, waits,
};

const PAGE: &str = include_str!("../../docs/guide/production.md");

/// The rights behind these words of the page.
fn listed(words: &str) -> Vec<&'static str> {
    let (_, rights) = PAGE.split_once(words).expect("the words");
    rights.split('`').nth(1).expect("rights").split_whitespace().collect()
}

/// Of every user.
fn common() -> Vec<&'static str> {
    let (_, rights) = PAGE.split_once("```text\n").expect("the rights");
    rights.split("```").next().expect("their end").split_whitespace().collect()
}

fn user_at(server: &RedisServer, rights: &[&str]) {
    let rule = ["ACL", "SETUSER", "app", "reset", "on", ">secret"];
    server.cli::<()>(&[&rule, rights].concat());
}

/// What was refused, but for what the guide says is spared.
fn refused_at(server: &RedisServer) -> Vec<String> {
    let log: Vec<HashMap<String, redis::Value>> = server.cli(&["ACL", "LOG"]);
    let mut refused: Vec<_> = log.iter().map(|entry| format!("{:?}", entry["object"])).collect();
    refused.retain(|object| {
        !["\"info\"", "\"client|info\"", "\"client|kill\""]
            .iter()
            .any(|spared| object.contains(spared))
    });
    refused
}

async fn is_handed_over(one: &LockManager, other: &LockManager, key: &str) {
    let guard = one.lock(key).ttl(LONG).acquire().await.expect("allowed");
    let next = waits(other, key);
    wait_for("it waits", async || other.status().waiting == 1).await;
    guard.release().await.expect("it was held");
    served(next).await.release().await.expect("it was held");
}

fn as_user(url: &str) -> String {
    url.replacen("://", "://app:secret@", 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cluster() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(2, 0)).await.expect("it starts");
    let rights = [common(), listed("- in a cluster: ")].concat();
    (0..2).for_each(|node| user_at(cluster.node(node), &rights));
    let url = as_user(&cluster.url());
    let (one, other) = (connect(&url).await, connect(&url).await);
    for shard in [0, 1] {
        let key = cluster.key_at(shard);
        is_handed_over(&one, &other, &key).await;
        let slot = cluster.slot(&key);
        let guard = one.lock(&*key).ttl(LONG).acquire().await.expect("allowed");
        tokio::task::block_in_place(|| cluster.migrate(slot, 1 - shard));
        guard.extend(LONG).await.expect("it is held");
        guard.release().await.expect("it was held");
    }
    for node in 0..2 {
        assert_eq!(refused_at(cluster.node(node)), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_quorum() {
    let quorum = tokio::task::spawn_blocking(|| Quorum::of(3)).await.expect("they start");
    let rights = [common(), listed("- with `redlock://`:")].concat();
    quorum.nodes.iter().for_each(|node| user_at(node, &rights));
    let url = as_user(&quorum.url());
    let (one, other) = (connect(&url).await, connect(&url).await);
    is_handed_over(&one, &other, "k").await;
    for node in &quorum.nodes {
        assert_eq!(refused_at(node), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sentinels_and_their_servers_with_replicas() {
    let all = tokio::task::spawn_blocking(|| Sentinels::start(3)).await.expect("they start");
    let rights = [common(), listed("- with `replicas`:")].concat();
    (0..2).for_each(|server| user_at(all.server(server), &rights));
    let rights = listed("- at sentinels, of which users are their own: ");
    (0..3).for_each(|sentinel| user_at(all.sentinel(sentinel), &rights));
    let url = as_user(&all.url());
    let url =
        format!("{url}?sentinel_user=app&sentinel_pass=secret&replicas=1&replica_timeout=500ms");
    let (one, other) = (connect(&url).await, connect(&url).await);
    is_handed_over(&one, &other, "k").await;
    (0..2).for_each(|server| assert_eq!(refused_at(all.server(server)), Vec::<String>::new()));
    (0..3).for_each(|one| assert_eq!(refused_at(all.sentinel(one)), Vec::<String>::new()));
}
