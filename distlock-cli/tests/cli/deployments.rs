//! Every way of deploying a store that the library takes: whatever looks into it sees the same.

use std::time::Instant;

#[cfg(feature = "etcd")]
use distlock_testkit::EtcdServer;
#[cfg(feature = "zookeeper")]
use distlock_testkit::ZooKeeperServer;
use distlock_testkit::{
    Certificates, Cluster, LONG, PostgresServer, Quorum, RedisServer, Sentinels, wait_until,
};
use serde_json::Value;

use crate::support::{Ran, Tool, distlock, ran};

/// Three locks: a few of a cluster's nodes have one.
const KEYS: [&str; 3] = ["order:1", "order:2", "order:3"];

fn json(ran: Ran) -> Value {
    let ran = ran.ends_with(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

struct At<'a>(&'a str);

impl At<'_> {
    fn run(&self, args: &[&str]) -> Ran {
        ran(distlock(&[args, &["-u", self.0]].concat()))
    }

    fn start(&self, args: &[&str]) -> Tool {
        let mut command = distlock(args);
        command.env("DISTLOCK_URL", self.0);
        Tool::start(command)
    }

    fn inspect(&self, key: &str) -> Value {
        json(self.run(&["inspect", "--json", key]))
    }
}

/// Holds, waits, looks and takes away.
fn all_of_it(url: &str) {
    all_with(url, Some("distlock run"));
}

/// `name`: what its holder says that a lock is called, where it can be asked.
fn all_with(url: &str, name: Option<&str>) {
    let at = At(url);
    let holder = at.start(&[&["run"], &KEYS[..], &["--", "sleep", "600"]].concat());
    wait_until("it is held", || at.inspect(KEYS[2])["held"] == true);
    let waiter = at.start(&["run", "-w", "60s", KEYS[0], "--", "true"]);
    wait_until("one waits", || at.inspect(KEYS[0])["waiting"][0]["pid"].is_number());
    let pid = |tool: &Tool| tool.pid().as_raw_nonzero().get();
    let status = at.inspect(KEYS[0]);
    assert_eq!(status["holder"]["pid"], pid(&holder), "{url}: {status}");
    assert_eq!(status["holder"]["name"].as_str(), name, "{url}: {status}");
    assert_eq!(status["waiting"][0]["pid"], pid(&waiter), "{url}: {status}");
    let held = json(at.run(&["ls", "--json"]));
    let of = |key: &str| {
        let found = held.as_array().into_iter().flatten().find(|held| held["key"] == key);
        found.unwrap_or_else(|| panic!("{url}: no {key} in {held}"))
    };
    for key in KEYS {
        assert_eq!(of(key)["holder"]["pid"], pid(&holder), "{url}: {held}");
        assert!(of(key)["remaining_ms"].as_u64().is_some_and(|rest| rest <= 30_000), "{held}");
    }
    assert_eq!(of(KEYS[0])["waiting"], 1, "{url}: {held}");
    assert_eq!(held.as_array().map(Vec::len), Some(3), "{url}: {held}");
    #[cfg(feature = "top")]
    {
        let once = json(at.run(&["top", "--once", "--json"]));
        assert_eq!((&once["held"], &once["waiting"]), (&3.into(), &1.into()), "{url}: {once}");
    }
    at.run(&["release", "--force", KEYS[0]]).ends_with(0).says(&["taken away"]);
    holder.ended().ends_with(79);
    waiter.ended().ends_with(0);
    assert_eq!(json(at.run(&["ls", "--json"])), serde_json::json!([]), "{url}");
}

/// Nothing is wrong but that a restart forgets; the words of a check are in what it found.
fn doctor(url: &str, words: &[(&str, &str)]) -> Vec<Value> {
    let begin = Instant::now();
    let (ran, findings) = loop {
        let ran = At(url).run(&["doctor", "--json"]);
        assert_eq!(ran.code, Some(1), "{url}: {ran:?}");
        let findings: Vec<Value> = serde_json::from_str(&ran.stdout).expect("JSON");
        // The clusters of these tests have no replicas, unless they are about them.
        let is_well = |found: &Value| {
            found["level"] == "ok"
                || found["check"] == "persistence"
                || found.to_string().contains("no replica: ")
        };
        if findings.iter().all(is_well) {
            break (ran, findings);
        }
        // On a busy machine answers are late.
        assert!(begin.elapsed() < LONG, "{url}: {ran:?}");
    };
    for (check, word) in words {
        let mut of = findings.iter().filter(|finding| finding["check"] == *check);
        assert!(of.any(|found| found.to_string().contains(word)), "{url}: {word}: {}", ran.stdout);
    }
    findings
}

#[test]
fn behind_sentinels() {
    let sentinels = Sentinels::start(3);
    doctor(&sentinels.url(), &[("replicas", "confirmed"), ("locks", "handed on")]);
    all_of_it(&sentinels.url());
}

/// Returns the doctor's findings once one of them contains these words, and its exit code.
fn finds(url: &str, check: &str, level: &str, words: &str) -> Option<i32> {
    let mut code = None;
    wait_until(&format!("it finds {words}"), || {
        let ran = At(url).run(&["doctor", "--json"]);
        code = ran.code;
        let findings: Vec<Value> = serde_json::from_str(&ran.stdout).expect("JSON");
        let is_it = |found: &Value| {
            let text = found["text"].as_str().unwrap_or_default();
            found["check"] == check && found["level"] == level && text.contains(words)
        };
        findings.iter().any(is_it)
    });
    code
}

/// Fault: FO4.
#[test]
fn a_lone_sentinel() {
    let sentinels = Sentinels::start(1);
    assert_eq!(finds(&sentinels.url(), "sentinels", "warn", "a lone sentinel"), Some(1));
}

/// Fault: FO4.
#[test]
fn sentinels_that_cannot_promote_a_replica() {
    let sentinels = Sentinels::start(3);
    let url = sentinels.url();
    assert_eq!(finds(&url, "sentinels", "ok", "3, and enough of them"), Some(1));
    let name = url.rsplit('/').next().expect("the primary's name");
    for one in 0..3 {
        sentinels.sentinel(one).cli::<()>(&["SENTINEL", "SET", name, "quorum", "9"]);
    }
    finds(&url, "sentinels", "warn", "NOQUORUM");
}

/// The node keeps serving the slots that it has.
/// Fault: FO4.
#[test]
fn half_a_cluster() {
    let cluster = Cluster::builder(2).args(["--cluster-require-full-coverage", "no"]).start();
    assert_eq!(finds(&cluster.url(), "slots", "ok", "all are served"), Some(1));
    finds(&cluster.url(), "replicas", "warn", "no replica");
    let second: Vec<String> = (8192..16384).map(|slot: u16| slot.to_string()).collect();
    let second = second.iter().map(String::as_str);
    let lost: Vec<&str> = ["CLUSTER", "DELSLOTS"].into_iter().chain(second).collect();
    // Start with the node that has them, because it would claim them again.
    [1, 0].into_iter().for_each(|node| cluster.cli::<()>(node, &lost));
    assert_eq!(finds(&cluster.url(), "slots", "fail", "8192 of 16384 are served"), Some(2));
}

#[test]
fn in_a_cluster() {
    let cluster = Cluster::builder(3).args(["--cluster-require-full-coverage", "no"]).start();
    let url = cluster.url();
    all_of_it(&url);
    let findings = doctor(&url, &[("fence", "in step"), ("locks", "handed on")]);
    let contents = findings.iter().filter(|finding| finding["check"] == "contents").count();
    assert!(contents >= 1, "{findings:?}");
    // A node that does not answer: the others' locks are seen, and what is missing is said.
    let _holder = At(&url).start(&["run", KEYS[0], "--", "sleep", "600"]);
    wait_until("it is held", || At(&url).inspect(KEYS[0])["held"] == true);
    let has_it =
        |at: &usize| cluster.node(*at).held_locks().iter().any(|lock| lock.contains(KEYS[0]));
    let other = (0..3).find(|at| !has_it(at)).expect("two have none");
    cluster.node(other).stop();
    let listed = At(&url).run(&["ls", "--json"]);
    cluster.node(other).cont();
    let listed = listed.ends_with(69).says(&["are missing"]);
    assert!(listed.stdout.contains(KEYS[0]), "{listed:?}");
}

#[test]
fn on_a_quorum() {
    let mut quorum = Quorum::of(3);
    doctor(&quorum.url(), &[("contents", "0 locks"), ("locks", "handed on")]);
    all_of_it(&quorum.url());
    // Without a minority all of it is seen.
    quorum.nodes[1].kill9();
    all_of_it(&quorum.url());
    let report = At(&quorum.url()).run(&["doctor"]).ends_with(1);
    assert!(report.stdout.contains(&format!("{}: ", quorum.nodes[1].addr())), "{report:?}");
}

#[test]
#[cfg(feature = "tls")]
fn over_tls() {
    let ours = Certificates::new();
    let certificate = ours.issue("local", &["DNS:localhost", "IP:127.0.0.1"]);
    let server = RedisServer::builder().tls(&certificate).start();
    let url = server.tls_url("localhost");
    doctor(&url, &[("locks", "handed on")]);
    all_of_it(&url);
}

/// By a file, too.
#[test]
fn over_a_unix_socket() {
    let server = RedisServer::start();
    all_of_it(&server.unix_url());
}

#[test]
#[cfg(feature = "postgres")]
fn in_postgres() {
    let server = PostgresServer::start();
    all_of_it(&server.url());
    let report = At(&server.url()).run(&["doctor"]);
    assert!(report.stdout.contains("handed on"), "{report:?}");
}

/// Processes cannot ask each other there, and leave records.
#[test]
#[cfg(feature = "etcd")]
fn in_etcd() {
    let server = EtcdServer::start();
    all_with(&server.url(), None);
}

#[test]
#[cfg(feature = "zookeeper")]
fn in_zookeeper() {
    let server = ZooKeeperServer::start();
    all_with(&server.url(), None);
}
