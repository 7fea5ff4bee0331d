//! Waiting, over processes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Subject;
use super::tools::{nothing_is_left, until_waiting};
use crate::{LONG, SECOND, held, in_line, ms, served, wait_for, waits};

/// First come, first served.
pub async fn first_come_first_served<S: Subject>(_: &str) {
    let subject = S::start();
    let holder = subject.manager().await;
    let guard = held(&holder, "k").await;
    let (mut tasks, order) = (JoinSet::new(), Arc::new(Mutex::new(Vec::new())));
    for n in 1..=5 {
        let manager = subject.manager().await;
        let noted = order.clone();
        let request = manager.lock("k").ttl(LONG).wait(LONG);
        let body = async move { noted.lock().expect("no panic").push(n) };
        let waiting = in_line(async move { request.run(body).await }).await;
        tasks.spawn(async move {
            waiting.await.expect("served");
            drop(manager);
        });
        until_waiting(&holder, "k", n).await;
    }
    guard.release().await.expect("it was held");
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [1, 2, 3, 4, 5]);
    nothing_is_left(&subject).await;
}

/// A lock that is released while another process waits is that one's at once: with a poll every five seconds
/// so many would take a minute.
pub async fn a_lock_is_handed_on_at_once<S: Subject>(_: &str) {
    const HANDED_ON: usize = 25;
    let subject = S::start();
    let managers = [subject.manager().await, subject.manager().await];
    let mut guard = held(&managers[0], "k").await;
    let mut took = Duration::ZERO;
    for n in 1..=HANDED_ON {
        let next = &managers[n % 2];
        let waiting = waits(next, "k");
        wait_for("it waits", async || next.status().waiting == 1).await;
        // It stands in the queue, and has looked.
        sleep(ms(50)).await;
        let start = Instant::now();
        guard.release().await.expect("it was held");
        guard = served(waiting).await;
        took += start.elapsed();
    }
    assert!(took < 15 * SECOND, "{took:?}: waiters are not told");
    drop(guard);
    nothing_is_left(&subject).await;
}
