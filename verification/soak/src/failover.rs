//! Primaries under Sentinel that are killed, or paused until another has taken their place, while a lock is
//! held and another is wanted: how soon after a sentinel has named the new primary a lock is granted there, and
//! that nothing is believed of one that wakes and takes itself for the primary.

use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockGuard, LockManager};
use distlock_testkit::{LONG, Sentinels, connect, owner, stored, wait_until};
use tokio::task::block_in_place;

use crate::effort::Effort;
use crate::report::Report;

const SENTINELS: usize = 3;
/// Outlives a fail-over, and is renewed every five seconds.
const TTL: Duration = Duration::from_secs(15);
/// From the moment that a sentinel names another primary.
const FIRST_GRANT: Duration = Duration::from_millis(250);
/// For so long after a woken primary was demoted locks are looked at.
const AFTER: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Findings {
    kills: u64,
    pauses: u64,
    first_grants: Vec<Duration>,
    named: Vec<Duration>,
    /// How long a primary that woke took itself for one.
    awake: Vec<Duration>,
    looked_at: u64,
    fence: u64,
    wrong: Vec<String>,
}

/// Runs it; every second fail-over is by a pause.
pub async fn run(effort: Effort) -> Report {
    let mut all = block_in_place(|| Sentinels::start(SENTINELS));
    let manager = connect(&all.url()).await;
    let (start, mut primary, mut findings) = (Instant::now(), 0, Findings::default());
    let mut rounds = 0;
    while effort.goes_on(rounds, start) {
        primary = match rounds % 2 {
            0 => killed(&mut all, primary, &manager, &mut findings).await,
            _ => paused(&mut all, primary, &manager, &mut findings).await,
        };
        rounds += 1;
    }
    let mut report = Report::default();
    report
        .figure("fail-overs", format!("{} by kill, {} by pause", findings.kills, findings.pauses));
    report.spread("a sentinel names another primary", findings.named, LONG);
    report.spread("first grant after that", findings.first_grants, FIRST_GRANT);
    report.spread("a woken primary takes itself for one", findings.awake, LONG);
    report.figure("grants meanwhile, none of the woken one", findings.looked_at);
    for wrong in findings.wrong {
        report.violated_if(true, wrong);
    }
    report
}

async fn killed(
    all: &mut Sentinels,
    old: usize,
    manager: &LockManager,
    findings: &mut Findings,
) -> usize {
    findings.kills += 1;
    let held = replicated(all, old, manager, findings).await;
    all.server_mut(old).kill9();
    let new = followed(all, old, manager, findings).await;
    let rest = held.remaining();
    let renewed = until(TTL, || held.remaining() > rest).await;
    findings.wrong_if(!renewed, "a replicated lock is not renewed by the new primary");
    let freed = held.release().await;
    findings.wrong_if(freed.is_err(), "a replicated lock was lost");
    block_in_place(|| {
        all.server_mut(old).restart();
        let addr = all.server(new).addr();
        let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
        all.server(old).cli::<()>(&["REPLICAOF", &ip, &port]);
        all.wait_until_followed(new);
    });
    new
}

async fn paused(
    all: &mut Sentinels,
    old: usize,
    manager: &LockManager,
    findings: &mut Findings,
) -> usize {
    findings.pauses += 1;
    let held = replicated(all, old, manager, findings).await;
    all.server(old).stop();
    let new = followed(all, old, manager, findings).await;
    // From here on only the paused one would confirm it.
    all.server(new).cli::<()>(&["DEL", &stored("held")]);
    let rest = held.remaining();
    all.server(old).cont();
    let (woken, mut demoted) = (Instant::now(), None);
    let mut believed = false;
    while demoted.is_none_or(|at: Instant| at.elapsed() < AFTER) {
        believed |= held.remaining() > rest;
        drop(granted(all, new, manager, "woken", findings).await);
        findings.looked_at += 1;
        if demoted.is_none() && !all.is_primary(old) {
            demoted = Some(Instant::now());
            findings.awake.push(woken.elapsed());
        }
        tokio::time::sleep(LOOK * 5).await;
    }
    findings.wrong_if(believed, "a renewal of the woken primary was believed");
    let lost = until(TTL, || !held.is_held()).await;
    findings.wrong_if(!lost, "a lock that the new primary does not know is not lost");
    drop(held);
    block_in_place(|| all.wait_until_followed(new));
    new
}

/// A lock that the replica knows as well.
async fn replicated(
    all: &Sentinels,
    primary: usize,
    manager: &LockManager,
    findings: &mut Findings,
) -> LockGuard {
    let held = granted(all, primary, manager, "held", findings).await;
    block_in_place(|| {
        wait_until("it is replicated", || owner(all.server(1 - primary), "held").is_some());
    });
    held
}

/// A lock, which must be one of this primary.
async fn granted(
    all: &Sentinels,
    primary: usize,
    manager: &LockManager,
    key: &str,
    findings: &mut Findings,
) -> LockGuard {
    let guard = manager.lock(key).ttl(TTL).wait(LONG).acquire().await.expect("a lock");
    let is_there = owner(all.server(primary), key).is_some();
    findings.wrong_if(!is_there, "a grant of another server than the primary was believed");
    let grows = guard.fencing_token() > findings.fence;
    findings.wrong_if(!grows, "a fencing token is not above the one before");
    findings.fence = guard.fencing_token();
    guard
}

/// Waits until the sentinels have named another primary and a call that waited meanwhile has its lock there.
async fn followed(
    all: &Sentinels,
    old: usize,
    manager: &LockManager,
    findings: &mut Findings,
) -> usize {
    let begun = Instant::now();
    let call = manager.lock("next").ttl(TTL).wait(2 * LONG).acquire();
    let call = tokio::spawn(async move { (call.await, Instant::now()) });
    let (new, named) = block_in_place(|| named(all, old));
    let (guard, granted) = call.await.expect("no panic");
    let guard = guard.expect("a call that waits is served");
    findings.named.push(named.duration_since(begun));
    findings.first_grants.push(granted.saturating_duration_since(named));
    let is_there = owner(all.server(new), "next").is_some();
    findings.wrong_if(!is_there, "the first grant is not one of the new primary");
    findings
        .wrong_if(guard.fencing_token() <= findings.fence, "the first fencing token is too low");
    findings.fence = guard.fencing_token();
    new
}

/// The first sentinel that names another primary: which, and when.
fn named(all: &Sentinels, old: usize) -> (usize, Instant) {
    let start = Instant::now();
    while start.elapsed() < LONG {
        let named =
            (0..SENTINELS).find_map(|sentinel| all.named_by(sentinel).filter(|n| *n != old));
        if let Some(named) = named {
            return (named, Instant::now());
        }
        thread::sleep(LOOK);
    }
    panic!("no sentinel names another primary");
}

async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if holds() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

impl Findings {
    fn wrong_if(&mut self, wrong: bool, what: &str) {
        if wrong {
            let (kills, pauses) = (self.kills, self.pauses);
            self.wrong.push(format!("fail-over {}: {what}", kills + pauses));
        }
    }
}
