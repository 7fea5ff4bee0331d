//! Sentinel: the primary is followed wherever the sentinels say that it is, and what an earlier one still answers
//! is not believed.
//!
//! A fail-over takes two to three seconds here. Each test has sentinels and servers of its own.

use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockGuard, LockManager, WakeUps};
use distlock_testkit::{
    Certificates, LONG, Mode, SECOND, Sentinels, assert_lost, ms, owner, patient_builder, served,
    stored, wait_for, waits, whole_text,
};

/// A primary that a sentinel has named is found in a quarter of a second; a busy machine has time for it.
const FOUND: Duration = ms(10_000);
/// A lease that outlives a fail-over and is renewed every five seconds.
const LEASE: Duration = ms(15_000);

async fn start(sentinels: usize) -> Sentinels {
    blocking(move || Sentinels::start(sentinels)).await
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("no panic")
}

/// Waits until a sentinel names another server than this one; returns which.
async fn another(all: Sentinels, than: usize) -> (Sentinels, usize) {
    blocking(move || {
        let named = all.wait_for_another(0, than);
        (all, named)
    })
    .await
}

/// Gives up on a command after a second, as by default.
async fn connect(url: &str) -> LockManager {
    let mut manager = None;
    wait_for("the manager connects", async || {
        // Its subscription may come a while after it is connected.
        if manager.is_none() {
            manager = LockManager::builder().url(url).connect().await.ok();
        }
        manager.as_ref().is_some_and(|manager| manager.status().wake_ups == WakeUps::Notified)
    })
    .await;
    manager.expect("connected")
}

/// Takes a lock, however long no server gives it.
async fn taken(manager: &LockManager, key: &str) -> LockGuard {
    let mut taken = None;
    wait_for("a lock is given", async || {
        taken = manager.lock(key).ttl(LONG).wait(10 * SECOND).acquire().await.ok();
        taken.is_some()
    })
    .await;
    taken.expect("a lock")
}

/// Fault: D1.
#[tokio::test]
async fn a_killed_primary_is_followed_and_what_was_replicated_stays_held() {
    let all = start(3).await;
    let manager = connect(&all.url()).await;
    let before = taken(&manager, "before").await;
    let held = manager.lock("held").ttl(LEASE).acquire().await.expect("a lock");
    wait_for("it is replicated", async || owner(all.server(1), "held").is_some()).await;
    let token = owner(all.server(1), "held");
    before.release().await.expect("freed");
    let fence = held.fencing_token();

    let all = blocking(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        all
    })
    .await;
    // Calls that wait do not notice.
    let next = manager.lock("next").ttl(LONG).wait(LONG).acquire();
    let next = tokio::spawn(next);
    let (all, primary) = another(all, 0).await;
    let named = Instant::now();
    let next = next.await.expect("no panic").expect("a lock of the new primary");
    assert!(named.elapsed() < FOUND, "found only after {:?}", named.elapsed());
    assert!(next.fencing_token() > fence, "tokens grow over a fail-over");
    assert!(owner(all.server(primary), "next").is_some());

    let rest = held.remaining();
    wait_for("it is renewed there", async || held.remaining() > rest).await;
    assert!(held.is_held());
    assert_eq!(owner(all.server(primary), "held"), token, "by the same token");
    held.release().await.expect("it was ours all the time");
}

/// Fault: D1.
#[tokio::test]
async fn a_lock_that_was_not_replicated_is_lost_and_not_made_again() {
    let all = start(3).await;
    let manager = connect(&all.url()).await;
    let held = manager.lock("held").ttl(LEASE).acquire().await.expect("a lock");
    wait_for("it is replicated", async || owner(all.server(1), "held").is_some()).await;
    // As if it had not been.
    let replica = all.server(1);
    replica.cli::<()>(&["CONFIG", "SET", "replica-read-only", "no"]);
    replica.cli::<()>(&["DEL", &stored("held")]);
    replica.cli::<()>(&["CONFIG", "SET", "replica-read-only", "yes"]);
    let fence = held.fencing_token();
    let all = blocking(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        all
    })
    .await;
    let (all, primary) = another(all, 0).await;
    tokio::time::timeout(LONG, held.lost()).await.expect("its renewal finds out");
    assert_eq!(
        owner(all.server(primary), "held"),
        None,
        "nobody takes it again for a holder that has lost it"
    );
    assert_lost(held.release().await);
    assert!(taken(&manager, "held").await.fencing_token() > fence);
}

/// Fault: D3.
#[tokio::test]
async fn a_primary_that_wakes_after_its_fail_over_is_not_believed() {
    let all = start(3).await;
    let manager = connect(&all.url()).await;
    let held = manager.lock("held").ttl(LEASE).acquire().await.expect("a lock");
    wait_for("it is replicated", async || owner(all.server(1), "held").is_some()).await;
    all.server(0).stop();
    let (all, primary) = another(all, 0).await;
    // From here on only the one that was paused would confirm it.
    all.server(primary).cli::<()>(&["DEL", &stored("held")]);
    // The news of the fail-over take a moment; a lock says that they are there.
    drop(taken(&manager, "first").await);
    let woken = Instant::now();
    all.server(0).cont();
    let mut still = 0;
    while woken.elapsed() < 2 * SECOND {
        let guard = taken(&manager, "k").await;
        let own = owner(all.server(primary), "k");
        assert!(own.is_some() || !guard.is_held(), "a lock that the new primary does not know");
        // Until the sentinels reach it, it takes itself for the primary.
        still += u32::from(all.is_primary(0));
        drop(guard);
        tokio::time::sleep(ms(20)).await;
    }
    tokio::time::timeout(LONG, held.lost()).await.expect("a renewal of the new primary finds out");
    assert!(still > 0, "it never took itself for the primary: this test shows nothing");
}

/// Fault: D3.
#[tokio::test]
async fn a_primary_that_only_the_sentinels_miss_is_left_although_it_answers() {
    let all = blocking(|| Sentinels::builder(3).proxied().start()).await;
    // The sentinels hear nothing of it any more. New connections to it work.
    all.set_down_after(LONG);
    all.proxy(0).set(Mode::FreezeExisting);
    let manager = connect(&all.url()).await;
    let held = manager.lock("held").ttl(LONG).acquire().await.expect("a lock");
    assert!(owner(all.server(0), "held").is_some());
    all.set_down_after(SECOND);
    let (all, primary) = another(all, 0).await;
    let named = Instant::now();
    wait_for("locks are those of the new primary", async || {
        let guard = taken(&manager, "k").await;
        let is_there = owner(all.server(primary), "k").is_some();
        drop(guard);
        is_there
    })
    .await;
    assert!(named.elapsed() < FOUND, "left only after {:?}", named.elapsed());
    assert!(all.is_primary(0), "it was told: this test shows nothing");
    drop(held);
}

/// Fault: D3.
#[tokio::test]
async fn waiters_keep_their_places_over_a_fail_over() {
    let all = start(3).await;
    let [holder, first, second] =
        [connect(&all.url()).await, connect(&all.url()).await, connect(&all.url()).await];
    let held = holder.lock("k").ttl(LEASE).acquire().await.expect("a lock");
    let waits_long = |manager: &LockManager| waits(manager, "k");
    let first = waits_long(&first);
    wait_for("the first waits", async || queue_len(&all, 0) == 1).await;
    let second = waits_long(&second);
    wait_for("both wait", async || queue_len(&all, 0) == 2 && queue_len(&all, 1) == 2).await;
    let all = blocking(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        all
    })
    .await;
    let (all, primary) = another(all, 0).await;
    wait_for("both are heard again", async || queue_len(&all, primary) == 2).await;
    let rest = held.remaining();
    wait_for("it is renewed there", async || held.remaining() > rest).await;
    held.release().await.expect("it was ours all the time");
    let first = served(first).await;
    assert!(!second.is_finished(), "the first comes first");
    first.release().await.expect("freed");
    drop(served(second).await);
}

fn queue_len(all: &Sentinels, server: usize) -> usize {
    distlock_testkit::queue(all.server(server), "k").len()
}

/// Fault: D4.
#[tokio::test]
async fn one_sentinel_hangs_and_one_is_dead_and_the_third_will_do() {
    let all = blocking(|| {
        let mut all = Sentinels::start(3);
        all.sentinel(0).stop();
        all.sentinel_mut(1).kill9();
        all
    })
    .await;
    let begun = Instant::now();
    let manager = LockManager::connect(&all.url()).await.expect("one sentinel answers");
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
    manager.lock("k").acquire().await.expect("a lock").release().await.expect("freed");
    all.sentinel(0).cont();
}

/// Fault: D4.
#[tokio::test]
async fn a_name_that_no_sentinel_knows_and_a_server_that_is_none_are_named_at_once() {
    let all = blocking(|| Sentinels::builder(1).replicas(0).start()).await;
    let server = all.server(0).addr();
    for (url, mend) in [
        (all.url_of("shpo"), "no sentinel knows a primary named `shpo`"),
        (format!("redis-sentinel://{server}/shop"), "redis://"),
    ] {
        let begun = Instant::now();
        let error = patient_builder(&url).connect().await.expect_err("it must be refused");
        assert!(begun.elapsed() < 10 * SECOND, "only after {:?}: {error}", begun.elapsed());
        assert!(matches!(error, LockError::Backend { kind: BackendKind::Other, .. }), "{error:?}");
        assert!(whole_text(&error).contains(mend), "{}", whole_text(&error));
    }
}

/// Fault: D4.
#[tokio::test]
async fn servers_and_sentinels_have_passwords_of_their_own_and_no_text_shows_them() {
    let all = blocking(|| {
        let builder = Sentinels::builder(1).replicas(0);
        builder.password("hush-data").sentinel_password("hush-sentinel").start()
    })
    .await;
    let sentinel = all.sentinel(0).addr();
    let url = |data: &str, own: &str| {
        format!("redis-sentinel://:{data}@{sentinel}/shop?sentinel_pass={own}")
    };
    let manager = connect(&url("hush-data", "hush-sentinel")).await;
    manager.lock("k").acquire().await.expect("a lock").release().await.expect("freed");
    assert!(!format!("{manager:?}").contains("hush"));
    for (data, own) in [("hush-wrong", "hush-sentinel"), ("hush-data", "hush-wrong")] {
        let error =
            patient_builder(&url(data, own)).connect().await.expect_err("it must be refused");
        assert!(
            matches!(error, LockError::Backend { kind: BackendKind::Refused, .. }),
            "{error:?}"
        );
        assert!(!whole_text(&error).contains("hush"), "{}", whole_text(&error));
    }
}

/// Fault: D4.
#[tokio::test]
async fn sentinels_that_the_url_does_not_name_are_found() {
    let all = start(3).await;
    let only = format!("redis-sentinel://{}/shop", all.sentinel(2).addr());
    let manager = connect(&only).await;
    drop(taken(&manager, "before").await);
    // For as long as it takes to hear of the others.
    tokio::time::sleep(ms(300)).await;
    let all = blocking(move || {
        let mut all = all;
        all.sentinel_mut(2).stop();
        all.server_mut(0).kill9();
        all
    })
    .await;
    let (all, primary) = another(all, 0).await;
    let guard = taken(&manager, "k").await;
    assert!(owner(all.server(primary), "k").is_some());
    drop(guard);
    all.sentinel(2).cont();
}

#[tokio::test]
async fn sentinels_and_servers_that_speak_tls_are_followed() {
    let ours = Certificates::new();
    let local = ours.issue("local", &["IP:127.0.0.1"]);
    let all = blocking(move || Sentinels::builder(3).tls(&local).start()).await;
    let ca = ours.ca();
    let url = all.url().replace("redis-sentinel", "rediss-sentinel");
    let url = format!("{url}?ca={}&tls_roots=none", ca.display());
    let manager = connect(&url).await;
    drop(taken(&manager, "before").await);
    let all = blocking(move || {
        let mut all = all;
        all.server_mut(0).kill9();
        all
    })
    .await;
    let (all, primary) = another(all, 0).await;
    let guard = taken(&manager, "k").await;
    assert!(owner(all.server(primary), "k").is_some());
    guard.release().await.expect("freed");
    // Plain-text connections are refused.
    let plain = LockManager::connect(&all.url()).await.expect_err("they speak TLS");
    assert!(matches!(plain, LockError::Backend { .. }), "{plain:?}");
    assert!(whole_text(&plain).contains("rediss://"), "{}", whole_text(&plain));
}
