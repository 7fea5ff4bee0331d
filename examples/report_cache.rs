//! A report that many read, and that is rebuilt now and then: all readers at once, one rebuild.
//!
//! ```sh
//! cargo run --example report_cache
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example report_cache
//! ```
//!
//! Whoever wants the report reads it under a read lock. Who finds it out of date takes the write lock,
//! looks again, rebuilds it, and goes on as a reader with nobody in between. The same is done without a
//! lock and with an exclusive one, to compare.
//!
//! Each instance has a manager of its own, as a process has. Without `DISTLOCK_URL` they have one
//! together, in memory. Options: `--instances 4`, `--readers 10` (in each), `--reports 5` (for each).
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

mod instances;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LockMode, key, redis_lock};
use instances::Instances;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Error = Box<dyn std::error::Error + Send + Sync>;

const READ: Duration = Duration::from_millis(2);
const REBUILD: Duration = Duration::from_millis(20);
/// How often what the report is made of changes while it is read.
const VERSIONS: u64 = 5;
const WAIT: Duration = Duration::from_secs(60);

/// The report if it is up to date; true if it was.
#[redis_lock(key = "report:{report.name}", mode = read, wait = WAIT, manager = locks)]
async fn read(report: &Report, locks: &LockManager) -> Result<bool, LockError> {
    if report.is_stale() {
        return Ok(false);
    }
    report.read().await;
    Ok(true)
}

/// The report, rebuilt first if need be.
async fn read_or_rebuild(report: &Report, locks: &LockManager) -> Result<(), LockError> {
    // A reader cannot become the writer: two that tried would wait for each other. So the read lock is
    // free again when the write lock is asked for …
    while !read(report, locks).await? {
        let lock = locks.lock(key!("report:{report.name}")).mode(LockMode::Write).wait(WAIT);
        let writing = lock.acquire().await?;
        // … and someone else may have been here in between.
        if report.is_stale() {
            report.rebuild().await;
            // The other way is open: what is read now is what was built, and others read along.
            let reading = writing.downgrade().await?;
            report.read().await;
            return reading.release().await;
        }
        writing.release().await?;
    }
    Ok(())
}

/// The same under an exclusive lock: right, and one after the other.
#[redis_lock(key = "report:{report.name}", wait = WAIT, manager = locks)]
async fn read_alone(report: &Report, locks: &LockManager) -> Result<(), LockError> {
    read_without_a_lock(report).await;
    Ok(())
}

async fn read_without_a_lock(report: &Report) {
    if report.is_stale() {
        report.rebuild().await;
    }
    report.read().await;
}

/// The report where it is cached, in two parts that must be of one version, and the books about it.
struct Report {
    name: String,
    /// How many will read it.
    readers: u64,
    summary: AtomicU64,
    details: AtomicU64,
    reading: AtomicU64,
    most_at_once: AtomicU64,
    served: AtomicU64,
    torn: AtomicU64,
    rebuilt: AtomicU64,
}

impl Report {
    fn new(name: String, readers: u64) -> Self {
        let [summary, details, reading, most_at_once, served, torn, rebuilt] =
            [0; 7].map(AtomicU64::new);
        Self { name, readers, summary, details, reading, most_at_once, served, torn, rebuilt }
    }

    /// The version of what it is made of.
    fn newest(&self) -> u64 {
        1 + self.served.load(SeqCst).min(self.readers - 1) * VERSIONS / self.readers
    }

    fn is_stale(&self) -> bool {
        self.summary.load(SeqCst) < self.newest()
    }

    async fn read(&self) {
        let at_once = self.reading.fetch_add(1, SeqCst) + 1;
        self.most_at_once.fetch_max(at_once, SeqCst);
        let summary = self.summary.load(SeqCst);
        sleep(READ).await;
        if self.details.load(SeqCst) != summary {
            self.torn.fetch_add(1, SeqCst);
        }
        self.reading.fetch_sub(1, SeqCst);
        self.served.fetch_add(1, SeqCst);
    }

    async fn rebuild(&self) {
        let version = self.newest();
        self.summary.store(version, SeqCst);
        sleep(REBUILD).await;
        self.details.store(version, SeqCst);
        self.rebuilt.fetch_add(1, SeqCst);
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    NoLock,
    Exclusive,
    ReadAndWrite,
}

struct Options {
    instances: u32,
    readers: u32,
    reports: u32,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let options = [("instances", 4), ("readers", 10), ("reports", 5)];
    let [instances, readers, reports] = instances::options(options)?;
    let options = Options { instances, readers, reports };
    let instances = Instances::start(options.instances).await?;
    let (managers, kind) = (&instances.managers, instances.kept);
    println!(
        "Report cache: {} instances ({kind}), {} readers each; it changes {VERSIONS} times\n",
        options.instances, options.readers
    );
    println!("                  served  rebuilt  torn  at once    time");
    for (what, way) in [("without a lock", Way::NoLock), ("exclusive", Way::Exclusive)] {
        serve(what, way, &options, managers).await?;
    }
    let report = serve("read and write", Way::ReadAndWrite, &options, managers).await?;
    let is_right =
        report.torn.load(SeqCst) == 0 && (1..=VERSIONS).contains(&report.rebuilt.load(SeqCst));
    let shown = "Read and write: nobody saw half a report, and each version was built once.";
    Ok(instances.end(shown, is_right).await)
}

/// All readers of all instances, until each has had its reports.
async fn serve(
    what: &str,
    way: Way,
    options: &Options,
    instances: &[LockManager],
) -> Result<Arc<Report>, Error> {
    let readers = options.instances * options.readers * options.reports;
    let readers = u64::from(readers);
    let report = Arc::new(Report::new(format!("{}-{way:?}", std::process::id()), readers));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for locks in instances {
        for _ in 0..options.readers {
            let (report, locks, reports) = (report.clone(), locks.clone(), options.reports);
            tasks.spawn(async move {
                for _ in 0..reports {
                    match way {
                        Way::NoLock => read_without_a_lock(&report).await,
                        Way::Exclusive => read_alone(&report, &locks).await?,
                        Way::ReadAndWrite => read_or_rebuild(&report, &locks).await?,
                    }
                }
                Ok::<_, LockError>(())
            });
        }
    }
    while let Some(reader) = tasks.join_next().await {
        reader??;
    }
    let figure = |of: &AtomicU64| of.load(SeqCst);
    println!(
        "  {what:<14} {:>7}  {:>7}  {:>4}  {:>7}  {:>4.1} s",
        figure(&report.served),
        figure(&report.rebuilt),
        figure(&report.torn),
        figure(&report.most_at_once),
        start.elapsed().as_secs_f64(),
    );
    Ok(report)
}
