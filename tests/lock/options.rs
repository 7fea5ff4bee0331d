//! Every setting of the builder with every kind of URL: it works, or `build()` refuses it and names the fix.
//! No store ignores a setting.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use distlock::observe::Observer;
use distlock::{LockError, LockManager, LockManagerBuilder, TlsOptions};
use distlock_testkit::{SECOND, ms, whole_text};

/// A URL of every kind. The last one is a list for [`LockManagerBuilder::urls`].
const URLS: [(&str, &str); 16] = [
    ("memory", "memory://"),
    ("redis", "redis://h"),
    ("rediss", "rediss://h"),
    ("unix", "redis+unix:///run/redis.sock"),
    ("sentinel", "redis-sentinel://h/main"),
    ("sentinel tls", "rediss-sentinel://h/main"),
    ("cluster", "redis-cluster://h"),
    ("cluster tls", "rediss-cluster://h"),
    ("redlock", "redlock://a,b,c"),
    ("redlock tls", "redlock://a,b,c?tls=true"),
    ("postgres", "postgres://u:hunter2@h/d?sslmode=disable"),
    ("postgres tls", "postgres://u:hunter2@h/d?sslmode=require"),
    ("etcd", "etcd://u:hunter2@h"),
    ("zookeeper", "zookeeper://u:hunter2@h"),
    ("urls", "redis://a,redis://b,redis://c"),
    ("urls tls", "rediss://a,rediss://b,rediss://c"),
];

const ALL: &[&str] = &[""];
const REDIS: &[&str] =
    &["redis", "rediss", "unix", "sentinel", "sentinel tls", "cluster", "cluster tls"];
const TLS: &[&str] =
    &["rediss", "sentinel tls", "cluster tls", "redlock tls", "postgres tls", "urls tls"];
const SEVERAL: &[&str] = &[
    "redis",
    "rediss",
    "unix",
    "sentinel",
    "sentinel tls",
    "cluster",
    "cluster tls",
    "postgres",
    "postgres tls",
];
const QUORUMS: &[&str] = &["redlock", "redlock tls", "urls", "urls tls"];

struct Nobody;

impl Observer for Nobody {}

type Set = fn(LockManagerBuilder) -> LockManagerBuilder;

/// A setting, a value that is not its default, and where it works.
const SETTINGS: [(&str, Set, &[&str]); 19] = [
    ("prefix", |b| b.prefix("shop"), ALL),
    ("ttl", |b| b.ttl(9 * SECOND), ALL),
    ("wait", |b| b.wait(SECOND), ALL),
    ("max_hold", |b| b.max_hold(60 * SECOND), ALL),
    ("max_waiters", |b| b.max_waiters(3), ALL),
    ("identify", |b| b.identify(false), ALL),
    ("busy_status", |b| b.busy_status(409), ALL),
    ("retry_after", |b| b.retry_after(3 * SECOND), ALL),
    ("observer", |b| b.observer(Nobody), ALL),
    // Upper bounds, and a permission: a store that needs no connection stays within them.
    ("command_timeout", |b| b.command_timeout(2 * SECOND), ALL),
    ("connect_timeout", |b| b.connect_timeout(2 * SECOND), ALL),
    ("outage_grace", |b| b.outage_grace(Duration::ZERO), ALL),
    ("io_on_caller_runtime", |b| b.io_on_caller_runtime(false), ALL),
    ("tls", |b| b.tls(TlsOptions::default()), TLS),
    ("replicas", |b| b.replicas(2), REDIS),
    ("replica_timeout", |b| b.replica_timeout(ms(50)), REDIS),
    ("sentinel_credentials", |b| b.sentinel_credentials("", "hush"), &["sentinel", "sentinel tls"]),
    ("connections", |b| b.connections(2), SEVERAL),
    ("restart_guard", |b| b.restart_guard(60 * SECOND), QUORUMS),
];

/// Methods of the builder that are no settings.
const OTHERS: [&str; 5] = ["url", "urls", "build", "connect", "store"];

fn at(kind: &str, url: &str) -> LockManagerBuilder {
    match kind.starts_with("urls") {
        true => LockManager::builder().urls(url.split(',')),
        false => LockManager::builder().url(url),
    }
}

#[test]
fn fd5_every_setting_works_with_a_url_or_is_refused_with_the_fix() {
    let mut wrong = Vec::new();
    for (setting, set, works) in &SETTINGS {
        for (kind, url) in URLS {
            let built = set(at(kind, url)).build();
            let expected = *works == ALL || works.contains(&kind);
            match built {
                Ok(_) if expected => {}
                Ok(_) => wrong.push(format!("{setting} with {kind} is ignored")),
                Err(error) if expected => {
                    wrong.push(format!("{setting} with {kind} works: {}", whole_text(&error)));
                }
                Err(error) => {
                    let text = whole_text(&error);
                    let is_named = matches!(error, LockError::InvalidOption { .. })
                        && text.contains(&format!("{setting}: "));
                    let has_fix =
                        ["leave it out", "write ", "use "].iter().any(|fix| text.contains(fix));
                    let hides = !text.contains("hunter2") && !text.contains("hush");
                    if !(is_named && has_fix && hides) {
                        wrong.push(format!("{setting} with {kind}: {text}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A setting that nobody has put into the table fails here.
#[test]
fn fd5_every_setting_of_the_builder_is_in_the_table() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("distlock-runtime/src");
    let mut files = vec![sources.join("builder.rs")];
    for file in fs::read_dir(sources.join("builder")).expect("the builder") {
        files.push(file.expect("a file").path());
    }
    let mut methods = BTreeSet::new();
    for file in files {
        for line in fs::read_to_string(file).expect("a source").lines() {
            let method =
                line.strip_prefix("    pub fn ").or(line.strip_prefix("    pub async fn "));
            let end = |c: char| !c.is_alphanumeric() && c != '_';
            methods.extend(method.and_then(|text| text.split(end).next()).map(str::to_owned));
        }
    }
    let known = SETTINGS.iter().map(|(setting, ..)| *setting).chain(OTHERS);
    assert_eq!(methods, known.map(str::to_owned).collect());
}

/// An option that stands behind the `?` of a URL that has none such.
#[test]
fn fd5_an_option_of_another_url_is_refused() {
    let options =
        ["replicas=2", "replica_timeout=50ms", "guard=60s", "tls=true", "sentinel_user=a"];
    let urls = ["memory://", "etcd://h", "zookeeper://h", "postgres://u@h/d", "redlock://a,b,c"];
    for option in options {
        for url in urls {
            if url.starts_with("redlock") && ["guard=60s", "tls=true"].contains(&option) {
                continue;
            }
            let built = LockManager::connect_lazy(format!("{url}?{option}"));
            assert!(
                matches!(built, Err(LockError::InvalidOption { .. })),
                "{url}?{option}: {built:?}"
            );
        }
    }
    for url in ["redis://h?guard=60s", "redis+unix:///s?tls=true", "redis-cluster://h?guard=60s"] {
        let built = LockManager::connect_lazy(url);
        assert!(matches!(built, Err(LockError::InvalidOption { .. })), "{url}: {built:?}");
    }
    // A quorum is of servers without replicas that count.
    let built = LockManager::builder().urls(["redis://a?replicas=1", "redis://b", "redis://c"]);
    let text = whole_text(&built.build().expect_err("it would be ignored"));
    assert!(text.contains("replicas"), "{text}");
}
