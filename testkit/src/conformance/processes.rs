//! Processes that share a store, and that are killed.

use std::time::{Duration, Instant};

use distlock_runtime::{LockManager, LockStatus, Process};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Remote;
use super::modes::Kind;
use super::tools::{Number, all_of, nothing_is_left, until_waiting};
use crate::{
    LONG, SECOND, fork_self, held, in_fork, ms, patient, patient_builder, served, wait_for, waits,
};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const ROUNDS: usize = 5;
const UPDATES: usize = PROCESSES * TASKS * ROUNDS;
/// How many processes are ready, beside the number that they count up.
const READY: &str = ".ready";

/// No update is lost that is made under the lock.
pub async fn one_at_a_time_over_processes<S: Remote>(test: &str) {
    if in_fork() {
        return update(true).await;
    }
    assert_eq!(updated::<S>(test).await, UPDATES);
}

/// The test above can fail.
pub async fn updates_are_lost_without_a_lock<S: Remote>(test: &str) {
    if in_fork() {
        return update(false).await;
    }
    let kept = updated::<S>(test).await;
    assert!(kept < UPDATES, "nothing was lost without a lock");
}

/// The number when all processes are done.
async fn updated<S: Remote>(test: &str) -> usize {
    let (subject, number) = (S::start(), Number::zero());
    let ready = format!("{}{READY}", number.path());
    std::fs::create_dir(&ready).expect("a folder");
    let url = subject.url();
    let env = [("DISTLOCK_URL", &*url), ("NUMBER", number.path())];
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(test, &env)).collect();
    let joined =
        tokio::task::spawn_blocking(move || children.into_iter().for_each(|one| one.join()));
    joined.await.expect("no panic");
    nothing_is_left(&subject).await;
    std::fs::remove_dir_all(ready).expect("remove a folder");
    let kept = number.get();
    number.remove();
    kept
}

/// Processes leave a record: holders and waiters of a lock have names.
pub async fn holders_and_waiters_are_named_and_gone_when_they_close<S: Remote>(_test: &str) {
    let subject = S::start();
    let [one, other, third] =
        [subject.manager().await, subject.manager().await, subject.manager().await];
    let guard = held(&one, "k").await;
    let waiting = waits(&other, "k");
    wait_for("it waits", async || subject.left().len() == 2).await;
    let own = std::process::id();
    wait_for("both are named", async || {
        let status = third.inspect("k").await.expect("an answer");
        let LockStatus::Held { holders, waiters, .. } = status else { return false };
        let pid = |process: Option<&Process>| process.map(|process| process.pid);
        pid(holders[0].process.as_ref()) == Some(own)
            && waiters.first().is_some_and(|waiter| pid(waiter.process.as_ref()) == Some(own))
    })
    .await;
    let processes = async || third.processes().await.expect("an answer");
    wait_for("all three have a record", async || processes().await.len() == 3).await;
    assert!(processes().await.iter().all(|process| process.since < LONG));
    guard.release().await.expect("it was held");
    drop(served(waiting).await);
    for manager in [&one, &other] {
        assert!(manager.close(LONG).await.is_complete());
    }
    wait_for("the closed ones are gone", async || processes().await.len() == 1).await;
    let hidden = patient_builder(&subject.url()).identify(false).connect().await.expect("connect");
    held(&hidden, "k").await.release().await.expect("it was held");
    assert_eq!(processes().await.len(), 1);
}

/// One of the processes.
async fn update(locked: bool) {
    let manager = of_parent().await;
    let path = std::env::var("NUMBER").expect("where the number is");
    let ready = format!("{path}{READY}");
    // Together, or the first would be done before the last has started.
    std::fs::write(format!("{ready}/{}", std::process::id()), "").expect("a file");
    wait_for("all processes are ready", async || {
        std::fs::read_dir(&ready).expect("a folder").count() == PROCESSES
    })
    .await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (manager, number) = (manager.clone(), Number::at(&path));
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                if locked {
                    let request = manager.lock("number").ttl(10 * SECOND).wait(LONG);
                    request.run(number.add_one()).await.expect("its turn comes");
                } else {
                    number.add_one().await;
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!(manager.close(LONG).await.is_complete());
}

/// A manager of the store of the process that started this one.
async fn of_parent() -> LockManager {
    patient(&std::env::var("DISTLOCK_URL").expect("where the store is")).await
}

/// A waiter that dies is passed over, soon.
pub async fn a_dead_waiter_is_passed_over<S: Remote>(test: &str) {
    if in_fork() {
        let manager = of_parent().await;
        let waiting = manager.lock("k").ttl(LONG).wait(LONG).acquire().await;
        panic!("it was to die: {waiting:?}");
    }
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let guard = held(&one, "k").await;
    let url = subject.url();
    let child = fork_self(test, &[("DISTLOCK_URL", &url)]);
    until_waiting(&one, "k", 1).await;
    let waiting = waits(&other, "k");
    until_waiting(&one, "k", 2).await;
    child.kill9();
    // The store has noticed.
    sleep(ms(200)).await;
    guard.release().await.expect("it was held");
    // A reservation is for one to eight seconds.
    let next = timeout(20 * SECOND, served(waiting)).await.expect("the dead one is passed over");
    next.release().await.expect("it was held");
    nothing_is_left(&subject).await;
}

/// A holder that dies keeps the lock for as long as its lease runs, and no longer, in every mode.
pub async fn a_dead_holder_is_outlived<S: Remote>(test: &str) {
    const TTL: Duration = Duration::from_secs(2);
    if in_fork() {
        let manager = of_parent().await;
        let mut guards = Vec::new();
        for kind in Kind::all::<S>() {
            let request = kind.of(&manager, &format!("{kind:?}")).ttl(TTL);
            guards.push(request.acquire().await.expect("it is free"));
        }
        sleep(LONG).await;
        panic!("it was to die");
    }
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let url = subject.url();
    let child = fork_self(test, &[("DISTLOCK_URL", &url)]);
    let mut waiting = Vec::new();
    for kind in Kind::all::<S>() {
        let key = format!("{kind:?}");
        wait_for("it is held", async || {
            one.inspect(&*key).await.is_ok_and(|status| !status.is_free())
        })
        .await;
        waiting.push(waits(&other, &key));
        until_waiting(&one, &key, 1).await;
    }
    child.kill9();
    let died = Instant::now();
    all_of(waiting.into_iter().map(async |waiting| {
        let next = timeout(10 * TTL, served(waiting)).await.expect("the lease ends");
        // It was renewed after a third of it at the latest, so at least a half was left.
        assert!(died.elapsed() > TTL / 4, "it was taken from its holder");
        next.release().await.expect("it was held");
    }))
    .await;
    nothing_is_left(&subject).await;
}
