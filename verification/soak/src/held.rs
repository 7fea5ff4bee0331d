//! Many locks held at once: what renewing them costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_testkit::{RedisServer, connect, connections, runs};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::figures::{info, own_cpu, server_cpu, status};
use crate::report::Report;

/// The manager's default: each lock is renewed every ten seconds.
pub const TTL: Duration = Duration::from_secs(30);
/// Three renewals.
pub const WHILE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 200;

/// Holds `locks` locks and watches them for the effort's time.
pub async fn run(locks: usize, ttl: Duration, effort: Effort) -> Report {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    drop(manager.lock("warm-up").acquire().await.expect("granted"));
    let (threads, memory) = (status("Threads"), status("VmRSS"));
    let tasks = Handle::current().metrics().num_alive_tasks();

    let start = Instant::now();
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    for n in 0..locks {
        let (request, gate) = (manager.lock(format!("k-{n}")).ttl(ttl).wait(ttl), gate.clone());
        calls.spawn(async move {
            let _gate = gate.acquire().await.expect("never closed");
            request.acquire().await.expect("granted")
        });
    }
    let guards = calls.join_all().await;
    let mut report = Report::default();
    report.figure("locks held", guards.len());
    report.figure("taken in", format!("{:.1?}", start.elapsed()));

    let (cpu, servers) = (own_cpu(), server_cpu(&server));
    let (renewed, sent) = (runs(&server, "pexpire"), runs(&server, "evalsha"));
    let reads = || info::<u64>(&server, "total_reads_processed").unwrap_or_default();
    let (read, start) = (reads(), Instant::now());
    while effort.goes_on(0, start) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        if lost > 0 {
            report.violated_if(true, format!("{lost} locks were lost"));
            break;
        }
    }
    let (window, cpu) = (start.elapsed(), own_cpu() - cpu);
    let servers = server_cpu(&server) - servers;
    let (read, sent) = (reads() - read, runs(&server, "evalsha") - sent);
    let renewed = runs(&server, "pexpire") - renewed;
    let share = |part: f64, of: u64| if of == 0 { f64::NAN } else { part / of as f64 };
    report.figure("watched for", format!("{window:.1?}, ttl {ttl:?}"));
    report.figure("renewals", renewed);
    report.figure("commands per renewed lock", format!("{:.3}", share(sent as f64, renewed)));
    report.figure("renewals per read of the server", format!("{:.1}", share(renewed as f64, read)));
    let seconds = cpu.as_secs_f64();
    let micros = |seconds: f64| format!("{:.1} µs", share(seconds * 1e6, renewed));
    let percent = |seconds: f64| format!("{:.2} %", 100.0 * seconds / window.as_secs_f64());
    report.figure("CPU of this process", percent(seconds));
    report.figure("CPU of this process per renewal", micros(seconds));
    report.figure("CPU of the server", percent(servers));
    report.figure("CPU of the server per renewal", micros(servers));
    let (more_threads, more_memory) =
        (status("Threads").saturating_sub(threads), status("VmRSS").saturating_sub(memory));
    let more_tasks = Handle::current().metrics().num_alive_tasks().saturating_sub(tasks);
    report.figure("threads more than before", more_threads);
    report.figure("tasks of the callers' runtime more", more_tasks);
    report.figure("memory per lock", format!("{} B", more_memory * 1024 / locks as u64));
    report.figure("connections", connections(&server));
    report.violated_if(renewed < locks as u64, "not every lock was renewed");
    report.violated_if(server.lock_keys().len() != locks, "locks are missing at the server");
    report.violated_if(sent > 2 * renewed, "more than two commands for a renewed lock");
    // Those that blocking calls of this program may have started; in a test they are others' as well.
    report.past_if(more_threads > 8, format!("{more_threads} threads more than before"));
    report.violated_if(more_tasks > 0, format!("{more_tasks} tasks more than before"));
    report.violated_if(connections(&server) > 3, "more than three connections");

    let start = Instant::now();
    drop(guards);
    let closed = manager.close(ttl).await;
    report.figure("freed in", format!("{:.1?}", start.elapsed()));
    report.violated_if(!closed.is_complete(), format!("at the end: {closed:?}"));
    report.violated_if(!server.lock_keys().is_empty(), "keys are left");
    report
}
