//! Waiting, over processes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock_runtime::LockManager;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Subject;
use super::modes::Kind;
use super::tools::{all_of, nothing_is_left, until_waiting};
use crate::{LONG, SECOND, in_line, ms, served, wait_for};

/// First come, first served: in every mode, and where modes that exclude each other wait for one lock.
pub async fn first_come_first_served<S: Subject>(_: &str) {
    let subject = S::start();
    let holder = subject.manager().await;
    let mut managers = Vec::new();
    for _ in 0..5 {
        managers.push(subject.manager().await);
    }
    all_of(Kind::all::<S>().map(|kind| serve_in_order(&subject, &holder, &managers, kind))).await;
    nothing_is_left(&subject).await;
}

async fn serve_in_order<S: Subject>(
    subject: &S,
    holder: &LockManager,
    managers: &[LockManager],
    kind: Kind,
) {
    let key = &*format!("{kind:?}");
    // Readers come in between writers, or they would be served together. Permits are all given, and one of
    // them is returned.
    let mut guards = kind.fill(holder, key).await;
    let kinds = if kind == Kind::Read { [Kind::Write, kind] } else { [kind; 2] };
    let (mut tasks, order) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
    for (n, manager) in (1..).zip(managers) {
        let noted = order.clone();
        let request = kinds[(n + 1) % 2].of(manager, key).wait(LONG);
        let body = async move { noted.lock().expect("no panic").push(n) };
        let waiting = in_line(async move { request.run(body).await }).await;
        tasks.spawn(async move { waiting.await.expect("served") });
        until_waiting(holder, key, n).await;
        wait_for("they stand everywhere", async || subject.stand_everywhere(key, n)).await;
    }
    let kept = if kind == Kind::Permit { guards.pop() } else { None };
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [1, 2, 3, 4, 5], "{kind:?}");
    drop(kept);
}

/// A lock that is released while another process waits is that one's at once, in every mode: with a poll every
/// five seconds this number of turns would take more than half a minute.
pub async fn a_lock_is_handed_on_at_once<S: Subject>(_: &str) {
    let subject = S::start();
    let managers = [subject.manager().await, subject.manager().await];
    all_of(Kind::all::<S>().map(|kind| hand_on(&managers, kind))).await;
    nothing_is_left(&subject).await;
}

async fn hand_on(managers: &[LockManager; 2], kind: Kind) {
    const HANDED_ON: usize = 15;
    let key = &*format!("{kind:?}");
    let mut guards = kind.fill(&managers[0], key).await;
    let mut took = Duration::ZERO;
    for n in 1..=HANDED_ON {
        // Readers and writers take turns. Of two permits one is handed on.
        let next = if kind == Kind::Read && n % 2 == 1 { Kind::Write } else { kind };
        let waiting = next.waits(&managers[n % 2], key);
        until_waiting(&managers[0], key, 1).await;
        // It stands in the queue, and has looked.
        sleep(ms(50)).await;
        let start = Instant::now();
        let freed = if kind == Kind::Permit { 1 } else { guards.len() };
        for guard in guards.drain(..freed) {
            guard.release().await.expect("it was held");
        }
        guards.push(served(waiting).await);
        took += start.elapsed();
    }
    assert!(took < 15 * SECOND, "{kind:?}: {took:?}: waiters are not told");
}
