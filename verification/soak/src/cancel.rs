//! Acquisitions that are dropped at random awaits, behind a network that takes its time: nothing is
//! left of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockManager, LockRequest};
use distlock_testkit::{LONG, Mode, Proxy, RedisServer, connect, connections, dropped_after};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::figures::{lock_commands, status};
use crate::report::Report;

const DELAY: Duration = Duration::from_millis(1);
const TASKS: u64 = 128;
/// Few enough that many find another in their way.
const KEYS: u64 = 400;
/// Renewed every third of a second: a renewal that is left running shows soon.
const SHORT: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    cancelled: AtomicU64,
}

/// Runs it; an effort of times counts acquisitions that were cancelled, to which those come that
/// were done before they could be.
pub async fn run(effort: Effort) -> Report {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = connect(&proxy.url()).await;
    warm_up(&manager).await;
    proxy.set(Mode::Delay(DELAY));
    let before = (connections(&server), Handle::current().metrics().num_alive_tasks());

    let start = Instant::now();
    let counts = Arc::new(Counts::default());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, counts) = (manager.clone(), counts.clone());
        tasks.spawn(async move {
            let mut dice = Dice(task);
            while effort.goes_on(counts.cancelled.load(SeqCst), start) {
                let done = one(&manager, &mut dice).await;
                if done { &counts.done } else { &counts.cancelled }.fetch_add(1, SeqCst);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let (took, end) = (start.elapsed(), Instant::now());

    let mut report = Report::default();
    let (done, cancelled) = (counts.done.load(SeqCst), counts.cancelled.load(SeqCst));
    report.figure("acquisitions", done + cancelled);
    report.figure("cancelled at some await", cancelled);
    report.figure("took", format!("{took:.1?}"));
    report.figure("sent by them", lock_commands(&server));
    let left = loop {
        let left = server.lock_keys().len();
        // Less than the ttl by which they would go in the end.
        if left == 0 || end.elapsed() > LONG / 4 {
            break left;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    report.figure("no key left after", format!("{:.1?}", end.elapsed()));
    report.violated_if(left > 0, format!("{left} keys are left"));

    // No key is left, and something may still be under way: releases of what held nothing.
    let mut quiet = lock_commands(&server);
    loop {
        tokio::time::sleep(SHORT * 2 / 5).await;
        let now = lock_commands(&server);
        if now == quiet || end.elapsed() > LONG / 4 {
            break;
        }
        quiet = now;
    }
    tokio::time::sleep(QUIET).await;
    let more = lock_commands(&server) - quiet;
    report.figure(format!("commands in {QUIET:?} afterwards"), more);
    report.violated_if(more > 0, format!("{more} commands were sent when all was over"));
    let keys = server.lock_keys().len();
    report.violated_if(keys > 0, format!("{keys} keys came when all was over"));

    let after = (connections(&server), Handle::current().metrics().num_alive_tasks());
    report.figure("connections, tasks before", format!("{before:?}"));
    report.figure("connections, tasks after", format!("{after:?}"));
    report.figure("threads", status("Threads"));
    report.violated_if(after.0 > before.0, "there are more connections than before");
    report.violated_if(after.1 > before.1, "there are more tasks than before");
    let closed = manager.close(LONG / 4).await;
    report.violated_if(!closed.is_complete(), format!("at the end: {closed:?}"));
    report
}

/// Until both connections are there.
async fn warm_up(manager: &LockManager) {
    let guard = manager.lock("warm-up").acquire().await.expect("granted");
    guard.extend(LONG).await.expect("it is held");
    guard.release().await.expect("it was held");
}

/// One acquisition and what follows it, dropped somewhere; whether it came to its end.
async fn one(manager: &LockManager, dice: &mut Dice) -> bool {
    let key = format!("k-{}", dice.below(KEYS));
    let ttl = if dice.below(2) == 0 { LONG } else { SHORT };
    let wait = Duration::from_millis([0, 20][dice.below(2) as usize]);
    let request = manager.lock(key).ttl(ttl).wait(wait);
    let call = call(request, dice.below(3));
    let (polls, time) = (dice.below(12) as usize, Duration::from_micros(dice.below(12_000)));
    match dice.below(2) {
        0 => dropped_after(polls, call).await.is_some(),
        _ => tokio::time::timeout(time, call).await.is_ok(),
    }
}

async fn call(request: LockRequest, what: u64) {
    // That others were first is as good an end as any.
    match what {
        0 => drop(request.acquire().await),
        1 => {
            if let Ok(guard) = request.acquire().await {
                let _ = guard.release().await;
            }
        }
        _ => {
            let _ = request.run(tokio::time::sleep(DELAY)).await;
        }
    }
}
