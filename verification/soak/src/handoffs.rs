//! One lock that many tasks of a few processes want all the time, with calls that are dropped at
//! random: it is never free for long while there is a waiter, and every grant has a body or goes on.
//!
//! The ledger is a file that the processes share: each body reads it, and writes it when it is gone.
//! Two at once lose an update.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{LONG, RedisServer, connect, fork_self, in_fork};
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::report::Report;
use crate::stamp::{between, now};

const NAME: &str = "handoffs";
const KEY: &str = "handoffs";
/// Of the process that does most of it, and of each of the others.
const TASKS: u64 = 64;
const TASKS_OF_OTHERS: u64 = 4;
const OTHERS: usize = 2;
/// How long the lock may be free while there is a waiter.
const FREE: Duration = Duration::from_millis(10);
/// The same where messages are lost.
const FREE_UNNOTIFIED: Duration = Duration::from_secs(6);
const ROOM: u32 = 10;
const AT_MOST_LATE: usize = 3;

/// Numbers that processes share, in a file: eight bytes each.
struct Shared(File);

#[derive(Clone, Copy)]
enum Number {
    /// Of bodies that were begun.
    Bodies,
    /// The last fencing token.
    Fence,
    /// When the last body ended.
    Ended,
    /// All processes are to stop.
    Over,
    /// What went wrong.
    Wrong,
    /// How many processes are at their end.
    Done,
}

impl Shared {
    fn at(path: &Path) -> Self {
        let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.expect("the ledger");
        Self(file)
    }

    fn get(&self, number: Number) -> u64 {
        let mut bytes = [0; 8];
        // Nothing is there at first.
        let _ = self.0.read_exact_at(&mut bytes, 8 * number as u64);
        u64::from_le_bytes(bytes)
    }

    fn set(&self, number: Number, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), 8 * number as u64).expect("the ledger");
    }
}

/// What one process has seen.
struct Seen {
    shared: Shared,
    /// How long the lock was free while its next holder waited, in microseconds.
    free: Mutex<Vec<u32>>,
    cancelled: AtomicU64,
}

/// A body under way; its end is noted whether it comes to its end or is dropped.
struct Body<'a> {
    seen: &'a Seen,
    bodies: u64,
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        // No other body has begun meanwhile.
        let shared = &self.seen.shared;
        if shared.get(Number::Bodies) != self.bodies {
            shared.set(Number::Wrong, 1);
        }
        shared.set(Number::Ended, now());
    }
}

impl Seen {
    fn new(path: &Path) -> Arc<Self> {
        let shared = Shared::at(path);
        Arc::new(Self { shared, free: Mutex::default(), cancelled: AtomicU64::new(0) })
    }

    fn begin(&self, arrived: u64, fence: u64) -> Body<'_> {
        let began = now();
        let shared = &self.shared;
        let free = between(shared.get(Number::Ended).max(arrived), began);
        let micros = u32::try_from(free.as_micros()).unwrap_or(u32::MAX);
        self.free.lock().expect("no panic").push(micros);
        if shared.get(Number::Fence) >= fence {
            shared.set(Number::Wrong, 2);
        }
        shared.set(Number::Fence, fence);
        let bodies = shared.get(Number::Bodies) + 1;
        shared.set(Number::Bodies, bodies);
        Body { seen: self, bodies }
    }

    fn over(&self) -> bool {
        self.shared.get(Number::Over) != 0
    }

    /// So many tasks take the lock again and again until all is over.
    async fn work(self: &Arc<Self>, manager: &LockManager, tasks: u64, seed: u64) {
        let mut all = JoinSet::new();
        for task in 0..tasks {
            let (seen, manager) = (self.clone(), manager.clone());
            all.spawn(async move {
                let mut dice = Dice(seed + task);
                while !seen.over() {
                    let call = seen.call(&manager, dice.below(20));
                    if dice.below(8) > 0 {
                        call.await;
                    } else if !in_time(Duration::from_micros(dice.below(3000)), call).await {
                        seen.cancelled.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        while let Some(task) = all.join_next().await {
            task.expect("no panic");
        }
    }

    async fn call(&self, manager: &LockManager, what: u64) {
        let arrived = now();
        let request = manager.lock(KEY).wait(LONG);
        let guard = request.acquire().await.expect("its turn comes");
        let body = self.begin(arrived, guard.fencing_token());
        match what {
            // Nearly all are short; a few let others run, or take their time.
            0 => tokio::time::sleep(Duration::from_micros(200)).await,
            1 => tokio::task::yield_now().await,
            _ => {}
        }
        // First the body, then the lock, as everywhere.
        drop(body);
        drop(guard);
    }
}

async fn in_time(time: Duration, call: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(time, call).await.is_ok()
}

/// How late a thread that sleeps for a millisecond is at worst: what is the machine's, and not ours.
struct Canary {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl Canary {
    fn start() -> Self {
        const NAP: Duration = Duration::from_millis(1);
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let thread = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !seen.load(SeqCst) {
                let start = Instant::now();
                thread::sleep(NAP);
                worst = worst.max(start.elapsed() - NAP);
            }
            worst
        });
        Self { over, thread }
    }

    fn end(self) -> Duration {
        self.over.store(true, SeqCst);
        self.thread.join().expect("no panic")
    }
}

/// Runs it; an effort of times counts bodies. The child processes come in here, too, and do not
/// return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let mut report = Report::default();
    // Most of it with messages, and some with a subscription that is cut all the time.
    let untold = match effort {
        Effort::Times(times) => Effort::Times(times / 100),
        Effort::Time(time) => Effort::Time(time / 10),
    };
    phase("told", effort, FREE, &mut report).await;
    phase("messages lost", untold, FREE_UNNOTIFIED, &mut report).await;
    report
}

async fn phase(name: &str, effort: Effort, bound: Duration, report: &mut Report) {
    let told = bound == FREE;
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let path = std::env::temp_dir().join(format!("distlock-ledger-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let seen = Seen::new(&path);
    let ledger = path.to_string_lossy().into_owned();
    let env = [("DISTLOCK_URL", &*server.url()), ("SOAK_LEDGER", &*ledger)]
        .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let others: Vec<_> = (0..OTHERS).map(|_| fork_self(NAME, &env)).collect();
    let canary = Canary::start();
    let start = Instant::now();
    let watch = async {
        let mut last = (0, Instant::now());
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let bodies = seen.shared.get(Number::Bodies);
            if bodies > last.0 {
                last = (bodies, Instant::now());
            }
            let stuck = last.1.elapsed() > bound * ROOM + LONG / 4;
            if stuck || !effort.goes_on(bodies, start) {
                seen.shared.set(Number::Over, 1);
                return stuck;
            }
            if !told {
                server.cli::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
        }
    };
    let (stuck, ()) = tokio::join!(watch, seen.work(&manager, TASKS, 1));
    let took = start.elapsed();
    let give_up = Instant::now() + LONG;
    while seen.shared.get(Number::Done) < OTHERS as u64 && Instant::now() < give_up {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stall = canary.end();
    let bodies = seen.shared.get(Number::Bodies);
    let mut free = std::mem::take(&mut *seen.free.lock().expect("no panic"));
    let own = free.len() as u64;
    for number in 0..OTHERS {
        let text = std::fs::read_to_string(seen_by(&path, number as u64)).unwrap_or_default();
        free.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        let _ = std::fs::remove_file(seen_by(&path, number as u64));
    }
    let per_second = bodies as f64 / took.as_secs_f64();
    let line = format!("{bodies} in {took:.1?}, {per_second:.0} a second");
    report.figure(format!("{name}: hand-offs"), line);
    report.figure(format!("{name}: by the busiest process"), own);
    let cancelled = seen.cancelled.load(SeqCst);
    report.figure(format!("{name}: calls of it that were dropped"), cancelled);
    report.figure(format!("{name}: a sleeping thread was late by"), format!("{stall:.1?} at most"));
    let free: Vec<_> =
        free.into_iter().map(|micros| Duration::from_micros(micros.into())).collect();
    let worst = free.iter().max().copied().unwrap_or_default();
    // One thread that stood still is one of them, and need not be the one that was watched; a waiter
    // that is not notified shows again and again, or until it looks by itself.
    let late = free.iter().filter(|free| **free > ROOM * (bound + stall)).count();
    report.violated_if(
        late > AT_MOST_LATE || worst > FREE_UNNOTIFIED + ROOM * stall,
        format!("{name}: free for {worst:.1?} with a waiter, {late} times too long"),
    );
    report.violated_if(
        free.len() as u64 != bodies,
        format!("{name}: {} bodies are known", free.len()),
    );
    report.spread(&format!("{name}: free with a waiter"), free, bound);
    let wrong = match seen.shared.get(Number::Wrong) {
        0 => None,
        1 => Some("two bodies at once"),
        _ => Some("a fencing token that did not grow"),
    };
    report.violated_if(wrong.is_some(), format!("{name}: {}", wrong.unwrap_or_default()));
    report.violated_if(stuck, format!("{name}: nothing goes on"));
    drop(others);
    let closed = manager.close(LONG).await;
    report.violated_if(!closed.is_complete(), format!("{name}: at the end: {closed:?}"));
    let left = server.lock_keys();
    report.violated_if(!left.is_empty(), format!("{name}: left behind: {left:?}"));
    let _ = std::fs::remove_file(&path);
}

/// Where a process leaves what it has seen.
fn seen_by(ledger: &Path, number: u64) -> std::path::PathBuf {
    ledger.with_extension(format!("seen-{number}"))
}

/// One of the other processes. Ends when it is killed.
async fn child() -> Report {
    let manager = LockManager::from_env().expect("a manager");
    let ledger = std::env::var("SOAK_LEDGER").expect("its ledger");
    let seen = Seen::new(Path::new(&ledger));
    seen.work(&manager, TASKS_OF_OTHERS, now()).await;
    manager.close(LONG).await;
    // One after the other, by the same lock's server.
    let turn = LockManager::from_env().expect("a manager");
    let turn = turn.lock("turn").wait(LONG).acquire().await.expect("its turn");
    let number = seen.shared.get(Number::Done);
    let free: Vec<_> = seen.free.lock().expect("no panic").iter().map(u32::to_string).collect();
    std::fs::write(seen_by(Path::new(&ledger), number), free.join("\n")).expect("written");
    seen.shared.set(Number::Done, number + 1);
    turn.release().await.expect("it was held");
    std::future::pending().await
}
