//! A log that sleeps over every line, or panics at it, must not hold up locks.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use distlock_testkit::{
    LONG, RedisServer, fork_self, in_fork, ms, patient, stored, this_test, wait_for, wait_until,
};

/// How long the log sleeps over a line.
const LINE: Duration = ms(200);
/// How many leases are lost: as lines they take eight seconds.
const LOST: usize = 40;
const HEALTHY: usize = 20;
/// A lease that is not renewed for as long as the lines take is gone.
const TTL: Duration = ms(3000);

static LINES: AtomicUsize = AtomicUsize::new(0);

/// What the log does at each line.
#[derive(Clone, Copy)]
enum Kind {
    Sleeps,
    Panics,
}

impl Kind {
    fn of_child() -> Self {
        match std::env::var("LOG_KIND").as_deref() {
            Ok("sleeps") => Self::Sleeps,
            Ok("panics") => Self::Panics,
            other => panic!("no such log: {other:?}"),
        }
    }
}

impl tracing::Subscriber for Kind {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "distlock"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        LINES.fetch_add(1, SeqCst);
        // Lines are written one after the other, as to a terminal.
        static TERMINAL: Mutex<()> = Mutex::new(());
        let _line = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            Self::Sleeps => std::thread::sleep(LINE),
            Self::Panics => panic!("the log cannot be written"),
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The processor time of the engines' threads.
fn engine_time() -> Duration {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("the threads") {
        let path = task.expect("a thread").path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        if name.trim() == "distlock" {
            let fields: Vec<_> = fields.split_whitespace().collect();
            ticks += fields[11..13].iter().map(|n| n.parse::<u64>().expect("ticks")).sum::<u64>();
        }
    }
    // A tick is a hundredth of a second on every Linux.
    ms(10 * ticks)
}

async fn hold(manager: &LockManager, kind: &str, n: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for i in 0..n {
        let request = manager.lock(format!("{kind}-{i}")).name(kind.to_owned()).ttl(TTL);
        guards.push(request.acquire().await.expect("it is free"));
    }
    guards
}

/// Sees that healthy leases are kept and free locks are given for as long as it takes to write the
/// first lines, and that the engine has nothing much to do.
async fn nobody_else_suffers(
    manager: &LockManager,
    healthy: &[LockGuard],
    from: (Instant, Duration),
) {
    let (begun, spent) = from;
    wait_for("lines are written", async || LINES.load(SeqCst) >= 3).await;
    let mut calls = 0;
    while begun.elapsed() < TTL + ms(500) {
        calls += 1;
        let guard = manager.lock("free").acquire().await;
        guard.expect("it is free").release().await.expect("it was held");
        tokio::time::sleep(ms(20)).await;
    }
    let kept = healthy.iter().filter(|guard| guard.is_held()).count();
    let (took, spent) = (begun.elapsed(), engine_time() - spent);
    let said = format!("{kept} of {HEALTHY} kept, {calls} calls, engine {spent:?} of {took:?}");
    assert_eq!(kept, HEALTHY, "{said}");
    assert!(spent < took / 5, "{said}");
}

/// Renewals find that their locks were taken away.
async fn lost_on_the_engine() {
    tracing::subscriber::set_global_default(Kind::of_child()).expect("the only one");
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let healthy = hold(&manager, "healthy", HEALTHY).await;
    let lost = hold(&manager, "lost", LOST).await;
    let from = (Instant::now(), engine_time());
    let keys: Vec<_> = (0..LOST).map(|i| stored(&format!("lost-{i}"))).collect();
    let mut del = vec!["DEL"];
    del.extend(keys.iter().map(String::as_str));
    assert_eq!(server.cli::<usize>(&del), LOST);
    for guard in &lost {
        tokio::time::timeout(LONG, guard.lost()).await.expect("it is lost");
    }
    nobody_else_suffers(&manager, &healthy, from).await;
    drop((healthy, lost));
    wait_until("nothing is left", || server.cli::<usize>(&["EXISTS", &stored("healthy-0")]) == 0);
}

/// Callers find that their leases have run out, a moment before the engine does.
async fn lost_on_callers_threads() {
    tracing::subscriber::set_global_default(Kind::of_child()).expect("the only one");
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let healthy = hold(&manager, "healthy", HEALTHY).await;
    let from = (Instant::now(), engine_time());
    let mut callers = Vec::new();
    for i in 0..LOST {
        let request = manager.lock(format!("lost-{i}")).ttl(ms(300)).renew(false);
        callers.push(std::thread::spawn(move || {
            // Looked at all the time, without anything that the engine has to wake.
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let busy = || {
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    std::thread::sleep(Duration::from_micros(200));
                    Poll::<()>::Pending
                })
            };
            runtime.block_on(async move { request.run(busy()).await })
        }));
    }
    wait_for("they are done", async || callers.iter().all(|caller| caller.is_finished())).await;
    nobody_else_suffers(&manager, &healthy, from).await;
    for caller in callers {
        let outcome = caller.join().expect("no panic reaches the caller");
        assert!(outcome.expect_err("its lease ran out").is_lost());
    }
}

fn in_children(test: &str) {
    for kind in ["sleeps", "panics"] {
        // A process of its own: it has one log.
        fork_self(test, &[("LOG_KIND", kind)]).join();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_a_log_that_sleeps_or_panics_on_the_engine_costs_no_other_lease() {
    match in_fork() {
        false => in_children(this_test!()),
        true => lost_on_the_engine().await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_a_log_that_sleeps_or_panics_on_a_callers_thread_costs_no_other_lease() {
    match in_fork() {
        false => in_children(this_test!()),
        true => lost_on_callers_threads().await,
    }
}
