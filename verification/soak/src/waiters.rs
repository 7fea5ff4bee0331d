//! Many waiters of one process for one lock: what they cost while nothing changes, and how soon all
//! are served when the lock is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock_testkit::{RedisServer, connect, connections, queue, runs};
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::figures::{own_cpu, status};
use crate::report::Report;

/// What one waiter may need, its task included.
const BYTES: u64 = 2048;
/// A waiter looks once in this time.
const LOOK: Duration = Duration::from_millis(4500);
/// The manager's default, of which a third is the time between two renewals.
const TTL: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(600);
/// How long nothing changes.
pub const WHILE: Duration = Duration::from_secs(30);

/// `waiters` wait for the effort's time, and are served.
pub async fn run(waiters: usize, effort: Effort) -> Report {
    let server = RedisServer::start();
    let (holder, manager) = (connect(&server.url()).await, connect(&server.url()).await);
    // What is made once is there before anything is counted.
    let warm_up = manager.lock("warm-up").wait(LONG).acquire().await.expect("granted");
    let waiting = tokio::spawn(holder.lock("warm-up").wait(LONG).acquire());
    while queue(&server, "warm-up").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    warm_up.release().await.expect("it was held");
    waiting.await.expect("no panic").expect("granted").release().await.expect("it was held");

    let guard = holder.lock("k").ttl(TTL).acquire().await.expect("granted");
    let served = Arc::new(AtomicUsize::new(0));
    let (memory, start, adds) = (status("VmRSS"), Instant::now(), runs(&server, "zadd"));
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let (request, served) = (manager.lock("k").wait(LONG), served.clone());
        tasks.spawn(async move {
            let guard = request.acquire().await.expect("its turn comes");
            served.fetch_add(1, SeqCst);
            guard.release().await.expect("it was held");
        });
    }
    // All have been polled, and stand in line, once a later one does.
    while queue(&server, "k").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut report = Report::default();
    report.figure("waiters", waiters);
    let each = (status("VmRSS").saturating_sub(memory)) * 1024 / waiters as u64;
    report.figure("memory per waiter, with its task", format!("{each} B"));
    // Of few the pages of the allocator are more than they are.
    let many = waiters >= 10_000;
    report.violated_if(many && each > BYTES, format!("a waiter needs {each} B"));
    let stand = queue(&server, "k").len();
    report.figure("places in the queue", stand);
    report.violated_if(stand != 1, format!("{stand} places for one process"));
    report.figure("joined in", format!("{:.1?}", start.elapsed()));
    report.figure("times entered", runs(&server, "zadd") - adds);

    let figures = || (runs(&server, "evalsha"), runs(&server, "pexpire"), runs(&server, "zadd"));
    let (before, cpu, start) = (figures(), own_cpu(), Instant::now());
    while effort.goes_on(0, start) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (window, after) = (start.elapsed(), figures());
    let (commands, looks) = (after.0 - before.0, after.2 - before.2);
    report.figure("nothing changed for", format!("{window:.1?}"));
    report.figure("looks meanwhile", looks);
    report.figure("other commands meanwhile, renewals", commands - looks);
    let cpu = 100.0 * (own_cpu() - cpu).as_secs_f64() / window.as_secs_f64();
    report.figure("CPU of this process meanwhile", format!("{cpu:.2} %"));
    let most = 1 + window.as_nanos() / LOOK.as_nanos();
    report.violated_if(u128::from(looks) > most, format!("{looks} looks, not {most}"));
    let most = 2 + window.as_nanos() / (TTL / 4).as_nanos();
    let renewals = u128::from(commands - looks);
    report.violated_if(renewals > most, format!("{renewals} renewals, not {most}"));
    report.figure("connections of both managers", connections(&server));

    let (before, start) = (figures(), Instant::now());
    guard.release().await.expect("it was held");
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    report.figure("all served in", format!("{:.1?}", start.elapsed()));
    report.figure("commands for that", figures().0 - before.0);
    let served = served.load(SeqCst);
    report.violated_if(served != waiters, format!("{served} were served"));
    manager.close(LONG).await;
    let left = server.lock_keys();
    report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
    report
}
