//! A network and a server that fail.

use std::time::Instant;

use distlock_runtime::{LockError, LockGuard, LockManager};
use tokio::time::{sleep, timeout};

use super::Remote;
use super::modes::Kind;
use super::tools::{all_of, nothing_is_left};
use crate::{LONG, Mode, Proxy, SECOND, ms, served, wait_for, waits};

/// A grant whose answer is lost is either found again by a call that still wants it, or given back.
pub async fn an_answer_that_is_lost_costs_no_lock<S: Remote>(_: &str) {
    let subject = S::start();
    let proxy = Proxy::to(subject.addr());
    let builder = LockManager::builder().url(subject.url_at(proxy.addr()));
    let manager = builder.command_timeout(ms(200)).connect().await.expect("connect");
    let other = subject.manager().await;
    // The connections that these locks go over are there: what comes next is a lock and no greeting.
    for key in ["given back", "found"] {
        give_up(served(waits(&manager, key)).await).await;
    }

    proxy.set(Mode::DropDown);
    let refused = manager.lock("given back").ttl(LONG).acquire().await;
    assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
    let found = tokio::spawn(manager.lock("found").ttl(LONG).wait(LONG).acquire());
    wait_for("it was granted, and the answer lost", async || {
        other.inspect("found").await.is_ok_and(|status| !status.is_free())
    })
    .await;
    proxy.set(Mode::Pass);
    let found = timeout(LONG, found).await.expect("an answer").expect("no panic").expect("granted");
    assert!(found.is_held());
    let given_back = other.lock("given back").ttl(LONG).wait(LONG).acquire();
    drop(timeout(LONG / 2, given_back).await.expect("it is free").expect("granted"));
    give_up(found).await;
    nothing_is_left(&subject).await;
}

/// A frozen store grants no lock in any mode, keeps none of what it was asked for without success, and serves again
/// when it continues.
pub async fn a_frozen_store_is_an_outage_and_no_lock<S: Remote>(_: &str) {
    let subject = S::start();
    let builder = LockManager::builder().url(subject.url()).command_timeout(ms(300));
    let manager = builder.connect().await.expect("connect");
    let mut guards = Vec::new();
    for kind in Kind::all::<S>() {
        guards.push(granted(&manager, &format!("held {kind:?}"), kind).await);
    }
    subject.freeze();
    all_of(Kind::all::<S>().map(async |kind| {
        let refused = kind.of(&manager, &format!("{kind:?}")).acquire().await;
        assert!(matches!(refused, Err(LockError::Backend { .. })), "{kind:?}: {refused:?}");
    }))
    .await;
    for guard in &guards {
        timeout(10 * SECOND, guard.lost()).await.expect("a lease that is not renewed is over");
    }
    subject.thaw();
    drop(guards);
    all_of(Kind::all::<S>().map(async |kind| {
        let key = format!("held {kind:?}");
        wait_for("it serves again", async || manager.lock(&*key).acquire().await.is_ok()).await;
    }))
    .await;
    nothing_is_left(&subject).await;
}

/// Gives up a lock that was not lost: a manager that gives up soon may not hear the answer.
async fn give_up(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        assert!(!error.is_lost(), "{error}");
    }
}

/// A lock, also if it takes the manager long to find the server again: a call that comes late in an outage waits for
/// a second only.
async fn granted(manager: &LockManager, key: &str, kind: Kind) -> LockGuard {
    let start = Instant::now();
    loop {
        match kind.of(manager, key).ttl(SECOND).wait(LONG).acquire().await {
            Ok(guard) => return guard,
            Err(LockError::Backend { .. }) if start.elapsed() < LONG => sleep(ms(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Fencing tokens grow over a crash in every mode, whatever data is left.
pub async fn fencing_tokens_grow_over_a_restart<S: Remote>(_: &str) {
    let mut subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let mut last: Vec<_> = Kind::all::<S>().map(|kind| (kind, 0)).collect();
    for round in 0..3 {
        all_of(last.iter_mut().map(async |(kind, last)| {
            for manager in [&one, &other] {
                let guard = granted(manager, &format!("{kind:?}"), *kind).await;
                assert!(guard.fencing_token() > *last, "{kind:?}, round {round}");
                *last = guard.fencing_token();
                // What became of it may be unknown: then it is over after its ttl.
                let _ = guard.release().await;
            }
        }))
        .await;
        if round < 2 {
            let crash = tokio::task::spawn_blocking(move || {
                subject.crash();
                subject
            });
            subject = crash.await.expect("no panic");
        }
    }
    nothing_is_left(&subject).await;
}
