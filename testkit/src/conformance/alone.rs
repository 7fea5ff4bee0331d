//! What holds for every store, also for one that lives in its manager's process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use distlock_runtime::{LockManager, LockMode, LockStatus};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Subject;
use super::modes::Kind;
use super::tools::{Inside, all_of, nothing_is_left, until_waiting};
use crate::{LONG, SECOND, assert_busy, dropped_after, held, ms, served, wait_for, waits};

/// No call that comes while others wait gets the lock before them. Whoever asks to be alone with it is alone,
/// also where calls of every mode want one lock.
pub async fn nobody_overtakes<S: Subject>(_: &str) {
    let subject = S::start();
    let managers = [subject.manager().await, subject.manager().await];
    let alone = async |kind: Kind| take_turns(&managers, &format!("{kind:?}"), &[kind]).await;
    let mixed: Vec<_> = Kind::all::<S>().collect();
    tokio::join!(
        alone(Kind::Exclusive),
        alone(Kind::Write),
        take_turns(&managers, "mixed", &mixed)
    );
    nothing_is_left(&subject).await;
}

/// Twenty calls of these kinds, half of them by each manager.
async fn take_turns(managers: &[LockManager; 2], key: &str, kinds: &[Kind]) {
    let mut tasks = JoinSet::new();
    // The calls that are alone, those that are not, the last fencing token, and the last of a call that was alone.
    let (alone, others) = (Arc::new(Inside::default()), Arc::new(Inside::default()));
    let (last, last_alone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for n in 0..20 {
        // Each manager asks in every mode.
        let kind = kinds[n / 2 % kinds.len()];
        let request = kind.of(&managers[n % 2], key).wait(LONG);
        let (alone, others) = (alone.clone(), others.clone());
        let (last, last_alone) = (last.clone(), last_alone.clone());
        tasks.spawn(async move {
            let guard = request.acquire().await.expect("its turn comes");
            let token = usize::try_from(guard.fencing_token()).expect("64 bits");
            let before = last.fetch_max(token, SeqCst);
            if kind.is_alone() {
                assert!(before < token, "fencing tokens grow");
                last_alone.fetch_max(token, SeqCst);
                assert_eq!((alone.visit(ms(2)).await, others.now()), (1, 0), "{kind:?} is alone");
            } else {
                assert!(last_alone.load(SeqCst) < token, "fencing tokens grow");
                others.visit(ms(2)).await;
                assert_eq!(alone.now(), 0, "nobody is alone beside {kind:?}");
            }
            guard.release().await.expect("it was held");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
}

/// Without renewal a lock is free when its lease is over, and not before, in every mode.
pub async fn a_lease_that_is_not_renewed_ends<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    all_of(Kind::all::<S>().map(async |kind| {
        let key = format!("{kind:?}");
        let request = kind.of(&one, &key).ttl(SECOND).renew(false);
        let guard = request.acquire().await.expect("it is free");
        let next = other.lock(&*key).ttl(LONG).wait(LONG).acquire();
        let next = timeout(20 * SECOND, next).await.expect("the lease ends").expect("granted");
        assert!(!guard.is_held(), "two hold the lock");
        assert!(next.fencing_token() > guard.fencing_token());
    }))
    .await;
    let guard = one.lock("k").ttl(SECOND).renew(false).acquire().await.expect("it is free");
    assert_busy(other.lock("k").acquire().await);
    drop(guard);
    nothing_is_left(&subject).await;
}

/// A lock that is held for longer than its ttl stays its holder's, in every mode.
pub async fn a_lease_that_is_renewed_lasts<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    all_of(Kind::all::<S>().map(async |kind| {
        let key = format!("{kind:?}");
        let guard = kind.of(&one, &key).ttl(3 * SECOND).acquire().await.expect("it is free");
        for _ in 0..40 {
            sleep(ms(100)).await;
            assert_busy(other.lock(&*key).acquire().await);
            assert!(guard.is_held());
        }
        // A waiter may hear of a renewal, which is no end.
        let waiting = waits(&other, &key);
        for _ in 0..25 {
            sleep(ms(100)).await;
            assert!(guard.is_held() && !waiting.is_finished());
        }
        guard.release().await.expect("it was held");
        served(waiting).await.release().await.expect("it was held");
    }))
    .await;
    nothing_is_left(&subject).await;
}

/// What an operator takes away is lost, and free for others, in every mode.
pub async fn a_lock_taken_away_is_lost_and_free<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    all_of(Kind::all::<S>().map(async |kind| {
        let key = format!("{kind:?}");
        let taken = other.force_release(&*key).await.expect("an answer");
        assert!(!taken, "it is free");
        let guard = kind.of(&one, &key).acquire().await.expect("it is free");
        let waiting = waits(&other, &key);
        until_waiting(&other, &key, 1).await;
        assert!(other.force_release(&*key).await.expect("an answer"), "it was held");
        timeout(LONG, guard.lost()).await.expect("its holder learns of it");
        let next = served(waiting).await;
        assert!(next.fencing_token() > guard.fencing_token());
        // What the former holder gives back is not the next one's.
        drop(guard);
        sleep(ms(50)).await;
        assert!(next.is_held());
        assert_busy(kind.of(&one, &key).acquire().await);
        next.release().await.expect("it was held");
    }))
    .await;
    nothing_is_left(&subject).await;
}

/// `inspect` distinguishes a free lock, one that is held, and one that is waited for, in every mode.
pub async fn inspect_says_who_holds_and_who_waits<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    all_of(Kind::all::<S>().map(|kind| inspect(&one, &other, kind))).await;
    nothing_is_left(&subject).await;
}

async fn inspect(one: &LockManager, other: &LockManager, kind: Kind) {
    let key = &*format!("{kind:?}");
    assert!(one.inspect(key).await.expect("an answer").is_free());
    let guard = kind.of(one, key).acquire().await.expect("it is free");
    wait_for("it is held, by one", async || match other.inspect(key).await.expect("an answer") {
        LockStatus::Held { remaining, waiting: 0, alone, holders, .. } => {
            let remaining = remaining.expect("it has an end");
            assert!(remaining > LONG / 2 && remaining <= LONG);
            alone == kind.is_alone() && holders.len() == 1
        }
        _ => false,
    })
    .await;
    let waiting = waits(other, key);
    until_waiting(one, key, 1).await;
    guard.release().await.expect("it was held");
    let next = served(waiting).await;
    kept_for_the_whole_ttl(one, key, Kind::Exclusive).await;
    let waiting = kind.waits(one, key);
    until_waiting(other, key, 1).await;
    next.release().await.expect("it was held");
    let last = served(waiting).await;
    kept_for_the_whole_ttl(other, key, kind).await;
    last.release().await.expect("it was held");
    assert!(one.inspect(key).await.expect("an answer").is_free());
}

/// What was reserved for a waiter for a moment is its own for the whole ttl, since it has come.
async fn kept_for_the_whole_ttl(manager: &LockManager, key: &str, kind: Kind) {
    let LockStatus::Held { remaining, alone, .. } = manager.inspect(key).await.expect("an answer")
    else {
        panic!("it is held");
    };
    assert!(remaining.is_some_and(|remaining| remaining > LONG / 2), "{kind:?}: {remaining:?}");
    assert_eq!(alone, kind.is_alone(), "{kind:?}");
}

/// Several locks are all held or none, and no two calls wait for each other, in every mode that several locks have:
/// permits are refused there.
pub async fn several_locks_are_taken_together<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let kinds = Kind::all::<S>().filter(|kind| *kind != Kind::Permit);
    all_of(kinds.map(|kind| take_several(&one, &other, kind))).await;
    nothing_is_left(&subject).await;
}

async fn take_several(one: &LockManager, other: &LockManager, kind: Kind) {
    let (a, b) = (&*format!("a {kind:?}"), &*format!("b {kind:?}"));
    let (alone, others) = (Arc::new(Inside::default()), Arc::new(Inside::default()));
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let (manager, keys) = match n % 2 {
            0 => (one, [a, b]),
            _ => (other, [b, a]),
        };
        // A writer is among the readers.
        let kind = if n % 6 < 2 { Kind::Write } else { kind };
        let request = kind.ask(manager.lock_all(keys)).wait(LONG);
        let (alone, others) = (alone.clone(), others.clone());
        tasks.spawn(async move {
            let body = async {
                if kind.is_alone() {
                    assert_eq!((alone.visit(ms(2)).await, others.now()), (1, 0), "it is alone");
                } else {
                    others.visit(ms(2)).await;
                    assert_eq!(alone.now(), 0, "nobody is alone beside it");
                }
            };
            request.run(body).await.expect("both are free some time");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let held = held(one, b).await;
    assert_busy(kind.ask(other.lock_all([a, b])).acquire().await);
    let free = other.lock(a).acquire().await;
    drop((held, free.expect("of two locks one was busy: the other is free")));
}

/// Readers are together and a writer is alone.
pub async fn readers_are_together_and_a_writer_alone<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let read =
        |manager: &distlock_runtime::LockManager| manager.lock("k").mode(LockMode::Read).ttl(LONG);
    let (a, b) = (read(&one).acquire().await, read(&other).acquire().await);
    let (a, b) = (a.expect("it is free"), b.expect("readers are together"));
    assert_busy(one.lock("k").acquire().await);
    drop((a, b));

    let (inside, writing) = (Arc::new(Inside::default()), Arc::new(Inside::default()));
    let mut tasks = JoinSet::new();
    for n in 0..24 {
        let manager = if n % 2 == 0 { &one } else { &other };
        let request = manager.lock("rw").ttl(LONG).wait(LONG);
        let (inside, writing) = (inside.clone(), writing.clone());
        if n % 4 == 3 {
            tasks.spawn(async move {
                let body = async { (writing.visit(ms(5)).await, inside.now()) };
                let with = request.mode(LockMode::Write).run(body).await;
                assert_eq!(with.expect("its turn comes"), (1, 0), "a writer is alone");
            });
        } else {
            tasks.spawn(async move {
                let body = inside.visit(ms(5));
                request.mode(LockMode::Read).run(body).await.expect("its turn comes");
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    nothing_is_left(&subject).await;
}

/// There are no more at once than there are permits.
pub async fn no_more_than_there_are_permits<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    let (permitted, mut tasks) = (Arc::new(Inside::default()), JoinSet::new());
    for n in 0..12 {
        let manager = if n % 2 == 0 { &one } else { &other };
        let request = manager.lock("permits").ttl(LONG).wait(LONG).permits(3);
        let permitted = permitted.clone();
        tasks.spawn(async move {
            request.run(permitted.visit(ms(20))).await.expect("its turn comes");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert!((2..=3).contains(&permitted.most()), "{} with 3 permits", permitted.most());
    nothing_is_left(&subject).await;
}

/// A call that is dropped, wherever it is, leaves nothing, whichever mode it asked for.
pub async fn what_is_dropped_leaves_nothing<S: Subject>(_: &str) {
    let subject = S::start();
    let (one, other) = (subject.manager().await, subject.manager().await);
    all_of(Kind::all::<S>().map(async |kind| {
        let (key, free) = (format!("{kind:?}"), format!("free {kind:?}"));
        for polls in 0..6 {
            // It may be reserved for the one that was dropped last, until its place is given up.
            let guard = served(waits(&other, &key)).await;
            let waiting = dropped_after(polls, kind.of(&one, &key).wait(LONG).acquire());
            // A waiter may not be polled as often.
            let waiting = timeout(ms(50), waiting).await.ok().flatten();
            assert!(waiting.is_none(), "it is held elsewhere");
            drop(dropped_after(polls, kind.of(&one, &free).acquire()).await);
            drop(dropped_after(polls, guard.release()).await);
        }
    }))
    .await;
    nothing_is_left(&subject).await;
    assert_eq!((one.status().held, one.status().waiting), (0, 0));
}
