use std::collections::BTreeSet;

use distlock::metrics::{Kind, METRICS};
use distlock::{LockManager, OnLost};
use distlock_testkit::{
    LONG, RedisServer, SECOND, in_line, in_own_process, ms, stored, this_test, wait_for,
};

use crate::text::{install, samples, sum};

/// Everything that can happen to a lock, in one program.
async fn program(server: &mut RedisServer, manager: &LockManager) {
    let lock = |key: &str| manager.lock(key).name("pay");
    let guard = lock("k").ttl(SECOND).acquire().await.expect("free");
    lock("k").acquire().await.expect_err("held");
    drop(in_line(lock("k").wait(LONG).acquire()).await);
    lock("").acquire().await.expect_err("no key");
    tokio::time::sleep(SECOND).await;
    guard.release().await.expect("held");
    let nested = async { lock("k").acquire().await.map(drop) };
    lock("k").run(nested).await.expect("free").expect_err("it would wait for itself");

    let other = LockManager::connect(&server.url()).await.expect("another process");
    let theirs = other.lock("k").acquire().await.expect("free");
    let waits = tokio::spawn(lock("k").wait(LONG).run(async {}));
    tokio::time::sleep(ms(200)).await;
    theirs.release().await.expect("held");
    waits.await.expect("no panic").expect("its turn");

    let guard = lock("k").acquire().await.expect("free");
    manager.force_release("k").await.expect("asked");
    guard.lost().await;
    drop(guard);
    let stolen = async { server.cli::<()>(&["DEL", &stored("k")]) };
    lock("k").on_lost(OnLost::Continue).run(stolen).await.expect("its result stands");
    lock("k").max_hold(SECOND).run(std::future::pending::<()>()).await.expect_err("lost");

    let held = lock("k").ttl(ms(900)).acquire().await.expect("free");
    server.kill9();
    held.lost().await;
    lock("other").acquire().await.expect_err("nobody is there");
    server.restart();
    wait_for("it is there again", async || manager.ping().await.is_ok()).await;
}

#[test]
fn every_metric_is_in_a_scrape_of_a_recorder_that_came_late() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut server = RedisServer::start();
        let builder = LockManager::builder().url(server.url()).command_timeout(5 * SECOND);
        let manager = builder.connect().await.expect("a manager");
        distlock::metrics::register(["nightly"]);
        manager.lock("k").run(async {}).await.expect("free, and recorded nowhere");
        let early = manager.lock("early").name("early").acquire().await.expect("free");
        let prometheus = install();
        early.release().await.expect("held");
        program(&mut server, &manager).await;
        manager.close(LONG).await;
        manager.lock("k").name("pay").acquire().await.expect_err("closed");
        drop(manager);
        let text = || prometheus.render();
        wait_for("its connections are gone", async || {
            sum(&text(), "distlock_connections", &[]) == 0.0
        })
        .await;
        let text = text();
        is_complete(&text);
        let calls = |outcome| {
            sum(&text, "distlock_acquisitions_total", &[("lock", "pay"), ("outcome", outcome)])
        };
        let outcomes =
            ["acquired", "busy", "backend", "deadlock", "invalid", "closed", "cancelled"];
        assert_eq!(outcomes.map(calls), [7.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "{text}");
        for (name, labels, expected) in [
            ("distlock_wait_seconds_count", vec![("outcome", "acquired")], 7.0),
            ("distlock_wait_seconds_count", vec![("outcome", "refused")], 5.0),
            ("distlock_hold_seconds_count", vec![], 7.0),
            ("distlock_lost_total", vec![("reason", "forced")], 1.0),
            ("distlock_lost_total", vec![("reason", "max_hold")], 1.0),
            ("distlock_lost_total", vec![("reason", "expired")], 1.0),
            ("distlock_late_releases_total", vec![], 1.0),
            ("distlock_held", vec![], 0.0),
            ("distlock_waiting", vec![], 0.0),
            ("distlock_longest_hold_seconds", vec![], 0.0),
        ] {
            let labels: Vec<_> = labels.into_iter().chain([("lock", "pay")]).collect();
            assert_eq!(sum(&text, name, &labels), expected, "{name} {labels:?}: {text}");
        }
        assert!(sum(&text, "distlock_renewals_total", &[("outcome", "ok")]) > 0.0, "{text}");
        assert_eq!(sum(&text, "distlock_held", &[("lock", "early")]), 0.0, "never below zero");
        assert_eq!(sum(&text, "distlock_acquisitions_total", &[("lock", "nightly")]), 0.0);
        assert!(text.contains(r#"lock="nightly""#), "its series begin at zero: {text}");
    });
}

/// Every metric of the table is there, with every value of its labels, and no other.
fn is_complete(text: &str) {
    let samples = samples(text);
    let base = |name: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"];
        let base = of_histogram.iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    };
    let known: BTreeSet<_> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    let ours = samples.iter().map(|sample| base(&sample.name));
    assert_eq!(ours.filter(|name| name.starts_with("distlock")).collect::<BTreeSet<_>>(), known);
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{metric:?}: {text}");
        assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.meaning)), "{metric:?}");
        for sample in samples.iter().filter(|sample| base(&sample.name) == metric.name) {
            let mut labels: BTreeSet<_> = sample.labels.iter().map(|(name, _)| &**name).collect();
            labels.remove("le");
            assert_eq!(labels, metric.labels.iter().map(|(name, _)| *name).collect(), "{sample:?}");
        }
        for (label, values) in metric.labels {
            let seen = |value: &str| {
                samples.iter().any(|sample| {
                    base(&sample.name) == metric.name && sample.label(label) == Some(value)
                })
            };
            // One program has one store.
            let values = values.iter().filter(|value| *label != "store" || **value == "redis");
            let missing: Vec<_> = values.filter(|value| !seen(value)).collect();
            assert!(missing.is_empty(), "{} without {label}={missing:?}: {text}", metric.name);
        }
    }
}
