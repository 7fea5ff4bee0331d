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
/// The folder of those that have a permit.
const INSIDE: &str = ".inside";
/// Files that tell of a number that changed while it was read, and of more visitors than there are permits.
const SEEN: [&str; 2] = [".changed", ".crowded"];

/// No update is lost that is made under the lock, no reader sees one that is being made, and no more are inside
/// than there are permits.
pub async fn one_at_a_time_over_processes<S: Remote>(test: &str) {
    if in_fork() {
        return update::<S>(true).await;
    }
    assert_eq!(updated::<S>(test).await, (UPDATES, [false; 2]));
}

/// Each part of the test above can fail.
pub async fn updates_are_lost_without_a_lock<S: Remote>(test: &str) {
    if in_fork() {
        return update::<S>(false).await;
    }
    let (kept, seen) = updated::<S>(test).await;
    assert!(kept < UPDATES, "nothing was lost without a lock");
    assert_eq!(seen, [true, S::PERMITS], "a change while it was read, more than there are permits");
}

/// The number when all processes are done, and what they have [seen](SEEN).
async fn updated<S: Remote>(test: &str) -> (usize, [bool; 2]) {
    let (subject, number) = (S::start(), Number::zero());
    let folders = [READY, INSIDE].map(|folder| format!("{}{folder}", number.path()));
    for folder in &folders {
        std::fs::create_dir(folder).expect("a folder");
    }
    let url = subject.url();
    let env = [("DISTLOCK_URL", &*url), ("NUMBER", number.path())];
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(test, &env)).collect();
    let joined =
        tokio::task::spawn_blocking(move || children.into_iter().for_each(|one| one.join()));
    joined.await.expect("no panic");
    nothing_is_left(&subject).await;
    for folder in folders {
        std::fs::remove_dir_all(folder).expect("remove a folder");
    }
    let seen = SEEN.map(|what| std::fs::remove_file(format!("{}{what}", number.path())).is_ok());
    let kept = number.get();
    number.remove();
    (kept, seen)
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
async fn update<S: Remote>(locked: bool) {
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
    for task in 0..TASKS {
        for kind in Kind::all::<S>().filter(|kind| *kind != Kind::Write) {
            let (manager, path) = (manager.clone(), path.clone());
            tasks.spawn(async move {
                for round in 0..ROUNDS {
                    // Those that update the number also take turns among the modes that are alone.
                    let kind = match kind {
                        Kind::Exclusive if round % 2 == 1 => Kind::Write,
                        kind => kind,
                    };
                    let key = if kind == Kind::Permit { "permits" } else { "number" };
                    let visit = visit(kind, &path, task);
                    if locked {
                        let request = kind.of(&manager, key).ttl(10 * SECOND).wait(LONG);
                        request.run(visit).await.expect("its turn comes");
                    } else {
                        visit.await;
                    }
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!(manager.close(LONG).await.is_complete());
}

/// What is done under the lock in this mode. Leaves a file if it sees what the lock is to prevent.
async fn visit(kind: Kind, path: &str, task: usize) {
    let see = |what| std::fs::write(format!("{path}{what}"), "").expect("a file");
    let number = Number::at(path);
    match kind {
        Kind::Exclusive | Kind::Write => number.add_one().await,
        Kind::Read => {
            let before = number.get();
            sleep(ms(1)).await;
            if number.get() != before {
                see(SEEN[0]);
            }
        }
        Kind::Permit => {
            let inside = format!("{path}{INSIDE}");
            let own = format!("{inside}/{}-{task}", std::process::id());
            std::fs::write(&own, "").expect("a file");
            if std::fs::read_dir(inside).expect("a folder").count() > 2 {
                see(SEEN[1]);
            }
            sleep(ms(1)).await;
            std::fs::remove_file(own).expect("remove a file");
        }
    }
}

/// A manager of the store of the process that started this one.
async fn of_parent() -> LockManager {
    patient(&std::env::var("DISTLOCK_URL").expect("where the store is")).await
}

/// A waiter that dies is passed over soon, whichever mode it asked for.
pub async fn a_dead_waiter_is_passed_over<S: Remote>(test: &str) {
    // The one that dies, and the one behind it. (Beside a reader that died another one would not wait.)
    let pairs = || {
        let alone = Kind::all::<S>().map(|kind| (kind, Kind::Exclusive));
        let others = Kind::all::<S>().filter(|kind| !kind.is_alone());
        alone.chain(others.map(|kind| (Kind::Write, kind))).map(|pair| (pair, format!("{pair:?}")))
    };
    if in_fork() {
        let manager = of_parent().await;
        all_of(pairs().map(async |((dies, _), key)| {
            let waiting = dies.of(&manager, &key).wait(LONG).acquire().await;
            panic!("it was to die: {waiting:?}");
        }))
        .await;
    }
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let mut guards = Vec::new();
    for (_, key) in pairs() {
        guards.push(held(&one, &key).await);
    }
    let url = subject.url();
    let child = fork_self(test, &[("DISTLOCK_URL", &url)]);
    let mut waiting = Vec::new();
    for ((_, behind), key) in pairs() {
        until_waiting(&one, &key, 1).await;
        waiting.push(behind.waits(&other, &key));
        until_waiting(&one, &key, 2).await;
    }
    child.kill9();
    // The store has noticed.
    sleep(ms(200)).await;
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    all_of(waiting.into_iter().map(async |waiting| {
        // A reservation is for one to eight seconds.
        let next =
            timeout(20 * SECOND, served(waiting)).await.expect("the dead one is passed over");
        next.release().await.expect("it was held");
    }))
    .await;
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
