//! Servers and networks that fail while bodies run and calls come in: no body is polled past its
//! deadline, every call ends in time, and when the store is back nothing of ours is left there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use distlock_testkit::{LONG, Mode, Proxy, RedisServer, wait_for};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::holder::Holder;
use crate::report::Report;

const COMMAND_TIMEOUT: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_millis(600);
const BODIES: usize = 8;
const CALLERS: u64 = 8;
/// More than a call may take longer than it says.
const SLACK: Duration = Duration::from_millis(50);
/// After a reconnect nothing of ours is left from here on.
const CLEAN: Duration = Duration::from_millis(250);
const BACK: Duration = Duration::from_secs(1);

/// What fails.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Stopped,
    KilledWithData,
    KilledWithoutData,
    CutBothWays,
    NothingArrives,
    NothingIsAnswered,
    HalfOpen,
}

const FAULTS: [Fault; 7] = [
    Fault::Stopped,
    Fault::KilledWithData,
    Fault::KilledWithoutData,
    Fault::CutBothWays,
    Fault::NothingArrives,
    Fault::NothingIsAnswered,
    Fault::HalfOpen,
];

/// Everything measured.
#[derive(Default)]
struct Findings {
    bodies: u64,
    polls: u64,
    late_polls: Vec<Duration>,
    lost: u64,
    kept: u64,
    /// How long after the deadline the call returned.
    told: Vec<Duration>,
    calls: u64,
    /// How much longer than max(`wait`, `command_timeout`) a call took.
    overtime: Vec<Duration>,
    back: Vec<Duration>,
    keys_left: usize,
    wrong: Vec<String>,
}

/// Runs it; an effort of times counts outages.
pub async fn run(effort: Effort) -> Report {
    let mut server = RedisServer::builder().durable().start();
    let proxy = Proxy::to(server.addr());
    let builder = LockManager::builder().url(proxy.url()).command_timeout(COMMAND_TIMEOUT);
    let manager = builder.build().expect("a URL");
    let (start, mut dice) = (Instant::now(), Dice(7));
    let (mut findings, mut rounds) = (Findings::default(), 0);
    while effort.goes_on(rounds, start) {
        let fault = FAULTS[rounds as usize % FAULTS.len()];
        // Some are over before any lease is.
        let time = Duration::from_millis(100 + dice.below(1200));
        server = round(server, &proxy, &manager, fault, time, &mut findings).await;
        rounds += 1;
    }
    let mut report = Report::default();
    report.figure("outages", rounds);
    report.figure("bodies", findings.bodies);
    report.figure("polls of bodies", findings.polls);
    let late = &findings.late_polls;
    let latest = late.iter().max().copied().unwrap_or_default();
    report.figure("polls seen past the deadline", late.len());
    // A poll that is allowed just before the deadline can be seen after it, if the machine is busy:
    // hardly ever, and not by much.
    report.violated_if(
        late.len() as u64 * 20 > findings.lost || latest > SLACK,
        format!("{} polls past the deadline, by up to {latest:.1?}", late.len()),
    );
    report.figure("bodies that lost their lease", findings.lost);
    report.figure("bodies that kept it", findings.kept);
    report.spread("Lost, after the deadline", findings.told, SLACK);
    report.figure("calls meanwhile", findings.calls);
    report.spread("calls, longer than they may wait", findings.overtime, SLACK);
    report.spread("first success after the return", findings.back, BACK);
    report.figure(format!("keys left {CLEAN:?} later"), findings.keys_left);
    report.past_if(findings.keys_left > 0, "keys are left after the reconnect");
    for wrong in findings.wrong {
        report.violated_if(true, wrong);
    }
    report
}

async fn round(
    server: RedisServer,
    proxy: &Proxy,
    manager: &LockManager,
    fault: Fault,
    time: Duration,
    findings: &mut Findings,
) -> RedisServer {
    let (end, over) = (watch::Sender::new(false), Arc::new(AtomicBool::new(false)));
    let mut bodies = JoinSet::new();
    let holders: Vec<_> = (0..BODIES).map(|_| Arc::new(Holder::default())).collect();
    for (n, holder) in holders.iter().enumerate() {
        bodies.spawn(body(manager.clone(), format!("held-{n}"), holder.clone(), end.subscribe()));
    }
    let running = async || holders.iter().all(|holder| holder.polls() >= 10);
    wait_for("all bodies run", running).await;
    let server = begin(fault, server, proxy).await;
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        callers.spawn(caller(manager.clone(), n, over.clone()));
    }
    tokio::time::sleep(time.saturating_sub(begun.elapsed())).await;
    over.store(true, SeqCst);
    while let Some(calls) = callers.join_next().await {
        for call in calls.expect("no panic") {
            findings.calls += 1;
            match call {
                Ok(overtime) => findings.overtime.push(overtime),
                Err(wrong) => findings.wrong.push(format!("{fault:?}: {wrong}")),
            }
        }
    }

    let server = heal(fault, server, proxy).await;
    let healed = Instant::now();
    let success = async || manager.lock("probe").ttl(LONG).acquire().await.is_ok();
    wait_for("the first success", success).await;
    let back = Instant::now();
    findings.back.push(back - healed);
    end.send_replace(true);
    while let Some(body) = bodies.join_next().await {
        let (holder, result, told) = body.expect("no panic");
        findings.bodies += 1;
        findings.polls += holder.polls();
        findings.late_polls.extend(holder.late());
        match result {
            Ok(()) => findings.kept += 1,
            Err(error) if error.is_lost() => {
                findings.lost += 1;
                // Not if it was taken away before its time, as by a server that lost its data.
                let by_the_clock = error.to_string().contains("ran out");
                if let Some(deadline) = holder.deadline().filter(|_| by_the_clock) {
                    findings.told.push(told.saturating_duration_since(deadline));
                }
            }
            Err(error) => findings.wrong.push(format!("{fault:?}: a body ended with {error}")),
        }
    }
    tokio::time::sleep(CLEAN.saturating_sub(back.elapsed())).await;
    let mut left = server.lock_keys();
    findings.keys_left += left.len();
    // What is left of a call would be there for much longer.
    while !left.is_empty() && back.elapsed() < LONG / 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        left = server.lock_keys();
    }
    if !left.is_empty() {
        findings.wrong.push(format!("{fault:?} of {time:?}: {} keys left: {left:?}", left.len()));
    }
    server
}

/// Holds a lock until it is asked to end, or its lease ends.
async fn body(
    manager: LockManager,
    key: String,
    holder: Arc<Holder>,
    mut end: watch::Receiver<bool>,
) -> (Arc<Holder>, Result<(), LockError>, Instant) {
    let ticks = async {
        while !*end.borrow_and_update() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let request = manager.lock(key.clone()).ttl(TTL).wait(LONG);
    let result = request.run(holder.body(&manager, &key, ticks)).await;
    (holder, result, Instant::now())
}

/// Calls until the outage is over: how much longer each took than it may, or what was wrong with it.
async fn caller(
    manager: LockManager,
    number: u64,
    over: Arc<AtomicBool>,
) -> Vec<Result<Duration, String>> {
    let mut calls = Vec::new();
    while !over.load(SeqCst) {
        let wait = if number.is_multiple_of(2) { Duration::ZERO } else { 2 * COMMAND_TIMEOUT };
        let request = manager.lock(format!("call-{number}-{}", calls.len())).ttl(LONG).wait(wait);
        let start = Instant::now();
        let result = request.acquire().await;
        let overtime = start.elapsed().saturating_sub(wait.max(COMMAND_TIMEOUT));
        calls.push(match result {
            // Before the fault, or on a new connection.
            Ok(guard) => {
                let _ = guard.release().await;
                Ok(overtime)
            }
            Err(LockError::Backend { .. }) => Ok(overtime),
            Err(error) => Err(format!("a call ended with {error}")),
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    calls
}

async fn begin(fault: Fault, server: RedisServer, proxy: &Proxy) -> RedisServer {
    match fault {
        Fault::Stopped => server.stop(),
        Fault::KilledWithData | Fault::KilledWithoutData => {
            return server.blocking(RedisServer::kill9).await;
        }
        Fault::CutBothWays => proxy.set(Mode::Freeze),
        Fault::NothingArrives => proxy.set(Mode::DropUp),
        Fault::NothingIsAnswered => proxy.set(Mode::DropDown),
        Fault::HalfOpen => proxy.set(Mode::FreezeExisting),
    }
    server
}

async fn heal(fault: Fault, server: RedisServer, proxy: &Proxy) -> RedisServer {
    match fault {
        Fault::Stopped => server.cont(),
        Fault::KilledWithData => return server.blocking(RedisServer::restart).await,
        Fault::KilledWithoutData => return server.blocking(RedisServer::restart_empty).await,
        _ => proxy.set(Mode::Pass),
    }
    server
}
