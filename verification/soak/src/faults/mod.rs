//! Random faults of every way to deploy Redis: servers that are killed, stand still, restart without their data or
//! fail over, networks that hold back, lose and reset, slots that move; while locks are taken, waited for and
//! renewed. What the locks protect checks fencing tokens, and says what would have become of it without.
//! Faults come by dice that a seed sets, and come again with the same one.

mod cluster;
mod quorum;
mod resource;
mod sentinel;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use distlock_testkit::{LONG, Mode, Proxy, SECOND, ms};
use tokio::task::{JoinSet, spawn_blocking};

use crate::effort::{Dice, Effort};
use crate::report::Report;
use resource::Resource;

/// Each is a process to the others.
const MANAGERS: usize = 4;
const TASKS: u64 = 6;
const KEYS: u64 = 4;
const TTL: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(10);
/// Shorter than it takes to notice a primary that is gone.
const COMMAND: Duration = Duration::from_millis(500);
/// Between two faults.
const REST: u64 = 1500;
/// Within this time after the last fault all managers are served again.
const HEALED: Duration = Duration::from_secs(30);

/// Servers, and what can happen to them.
trait Deployment: Send + 'static {
    fn url(&self) -> String;

    /// Whether a lock is promised to have one holder, whatever happens.
    fn is_strict(&self) -> bool;

    /// The keys of the locks that are used.
    fn keys(&self) -> Vec<String> {
        (0..KEYS).map(|n| format!("faults-{n}")).collect()
    }

    /// Something goes wrong, and is well again; says what.
    fn fault(&mut self, dice: &mut Dice) -> &'static str;

    /// What is left of locks.
    fn left(&self) -> Vec<String>;
}

/// What becomes of calls.
#[derive(Default)]
struct Tally {
    runs: AtomicU64,
    lost: AtomicU64,
    busy: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    fn note(&self, outcome: &Result<(), LockError>) {
        let count = match outcome {
            Ok(()) => &self.runs,
            Err(error) if error.is_lost() => &self.lost,
            Err(error) if error.is_busy() => &self.busy,
            Err(_) => &self.failed,
        };
        count.fetch_add(1, SeqCst);
    }
}

/// As long as it goes by default.
pub const WHILE: Effort = Effort::Time(Duration::from_secs(60));

/// What is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Three independent servers.
    Redlock,
    /// A primary and its replica under three sentinels.
    Sentinel,
    /// The same, with the replica's word for every lock.
    Replicas,
    /// Three shards with a replica each.
    Cluster,
}

/// Runs it; an effort of times counts faults.
pub async fn run(kind: Kind, effort: Effort, seed: u64) -> Report {
    let mut report = Report::default();
    report.figure("seed", seed);
    let dice = Dice(seed);
    match kind {
        Kind::Redlock => one(start(quorum::Nodes::start).await, effort, dice, &mut report).await,
        Kind::Sentinel => {
            one(start(|| sentinel::Watched::start(false)).await, effort, dice, &mut report).await;
        }
        Kind::Replicas => {
            one(start(|| sentinel::Watched::start(true)).await, effort, dice, &mut report).await;
        }
        Kind::Cluster => one(start(cluster::Shards::start).await, effort, dice, &mut report).await,
    }
    report
}

async fn start<D: Deployment>(start: impl FnOnce() -> D + Send + 'static) -> D {
    spawn_blocking(start).await.expect("no panic")
}

async fn one(mut servers: impl Deployment, effort: Effort, mut dice: Dice, report: &mut Report) {
    let is_strict = servers.is_strict();
    let keys: Arc<[_]> = servers.keys().into_iter().map(|key| (key, Resource::default())).collect();
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        let builder = LockManager::builder().url(servers.url()).ttl(TTL).command_timeout(COMMAND);
        managers.push(builder.build().expect("a manager"));
    }
    let (tally, over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (at, manager) in managers.iter().enumerate() {
        for task in 0..TASKS {
            let dice = Dice(1000 * at as u64 + task);
            tasks.spawn(work(manager.clone(), keys.clone(), dice, tally.clone(), over.clone()));
        }
    }
    let begun = Instant::now();
    let (servers, faults) = spawn_blocking(move || {
        let mut faults: Vec<(&str, u64)> = Vec::new();
        let mut count = 0;
        while effort.goes_on(count, begun) {
            std::thread::sleep(ms(dice.below(REST)));
            let fault = servers.fault(&mut dice);
            match faults.iter_mut().find(|(name, _)| *name == fault) {
                Some((_, times)) => *times += 1,
                None => faults.push((fault, 1)),
            }
            count += 1;
        }
        (servers, faults)
    })
    .await
    .expect("no panic");
    over.store(true, SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    for (fault, times) in &faults {
        report.figure(*fault, times);
    }
    for (what, count) in [
        ("bodies", &tally.runs),
        ("leases lost", &tally.lost),
        ("waits that ran out", &tally.busy),
        ("calls that failed", &tally.failed),
    ] {
        report.figure(what, count.load(SeqCst));
    }
    report.violated_if(tally.runs.load(SeqCst) == 0, "no lock was granted");
    resource::judge(&keys, is_strict, report);
    served(&managers, &keys, report).await;
    for manager in managers {
        manager.close(SECOND).await;
    }
    let left = nothing_left(servers).await;
    report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
}

async fn work(
    manager: LockManager,
    keys: Arc<[(String, Resource)]>,
    mut dice: Dice,
    tally: Arc<Tally>,
    over: Arc<AtomicBool>,
) {
    while !over.load(SeqCst) {
        let (key, resource) = &keys[dice.below(keys.len() as u64) as usize];
        let pause = ms(dice.below(10));
        let body = async {
            // The same lease, for its token: a nested call joins it and sends nothing.
            let lease = manager.lock(&**key).reentrant(true).acquire().await;
            if let Ok(lease) = lease {
                resource.changed(lease.fencing_token(), pause).await;
            }
        };
        let outcome = manager.lock(&**key).wait(WAIT).run(body).await;
        tally.note(&outcome);
        tokio::time::sleep(pause).await;
    }
}

/// After the last fault every manager gets every lock.
async fn served(managers: &[LockManager], keys: &[(String, Resource)], report: &mut Report) {
    let begun = Instant::now();
    for (key, _) in keys {
        for manager in managers {
            let mut last = None;
            while begun.elapsed() < HEALED {
                match manager.lock(&**key).wait(HEALED).acquire().await {
                    Ok(guard) => {
                        last = None;
                        drop(guard);
                        break;
                    }
                    Err(error) => last = Some(error.to_string()),
                }
            }
            report.violated_if(last.is_some(), format!("not well again: {last:?}"));
        }
    }
    report.figure("all had all locks after", format!("{:.1?}", begun.elapsed()));
}

async fn nothing_left(servers: impl Deployment) -> Vec<String> {
    spawn_blocking(move || {
        let begun = Instant::now();
        loop {
            let left = servers.left();
            if left.is_empty() || begun.elapsed() > LONG / 2 {
                return left;
            }
            std::thread::sleep(ms(50));
        }
    })
    .await
    .expect("no panic")
}

/// The network in front of a server is broken in one way or another for a while.
fn broken(proxy: &Proxy, dice: &mut Dice) {
    let modes = [
        Mode::Freeze,
        Mode::FreezeExisting,
        Mode::DropUp,
        Mode::DropDown,
        Mode::Reset,
        Mode::CutDown(dice.below(200) as usize),
        Mode::Delay(ms(dice.below(100))),
    ];
    proxy.set(modes[dice.below(modes.len() as u64) as usize]);
}
