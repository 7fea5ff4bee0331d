//! A partner whose API may be called by so many at once: one quota for all instances of a service.
//!
//! ```sh
//! cargo run --example api_quota
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example api_quota
//! ```
//!
//! The work comes unevenly: most of it to the first instance. A share of the quota for each instance
//! is never exceeded, but the others' shares lie idle. `permits` in the lock are for all instances
//! together.
//!
//! Each instance has a manager of its own, as a process has. Without `DISTLOCK_URL` they have one
//! together, in memory. Options: `--instances 4`, `--at-once 8` (what the partner allows), `--calls 160`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

mod instances;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, redis_lock};
use instances::Instances;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long the partner takes for an answer.
const ANSWER: Duration = Duration::from_millis(10);
/// Of the calls, what the first instance has to make: so many tenths.
const FIRST: u64 = 7;
const WAIT: Duration = Duration::from_secs(60);

/// A call with a permit. Whoever comes when all are out waits for its turn, over all instances.
#[redis_lock(key = "partner:{partner.name}", permits = partner.at_once, ttl = "5s", wait = WAIT, manager = locks)]
async fn call(partner: &Partner, locks: &LockManager) -> Result<(), LockError> {
    partner.answer().await;
    Ok(())
}

/// The partner, who counts the calls that are under way and refuses those that are too many.
struct Partner {
    name: String,
    at_once: u32,
    under_way: AtomicU64,
    most_at_once: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    /// How long all answers took.
    busy_micros: AtomicU64,
}

impl Partner {
    fn new(name: String, at_once: u32) -> Self {
        let [under_way, most_at_once, answered, refused, busy_micros] = [0; 5].map(AtomicU64::new);
        Self { name, at_once, under_way, most_at_once, answered, refused, busy_micros }
    }

    async fn answer(&self) {
        let under_way = self.under_way.fetch_add(1, SeqCst) + 1;
        self.most_at_once.fetch_max(under_way, SeqCst);
        if under_way > u64::from(self.at_once) {
            // 429, and a letter to our management.
            self.refused.fetch_add(1, SeqCst);
        } else {
            let start = Instant::now();
            sleep(ANSWER).await;
            self.busy_micros.fetch_add(start.elapsed().as_micros() as u64, SeqCst);
            self.answered.fetch_add(1, SeqCst);
        }
        self.under_way.fetch_sub(1, SeqCst);
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    NoLimit,
    /// Each instance has its part of the quota.
    Shares,
    Permits,
}

struct Options {
    instances: u32,
    at_once: u32,
    calls: u64,
}

impl Options {
    /// How many calls this instance has to make.
    fn calls_of(&self, instance: u32) -> u64 {
        let others = u64::from(self.instances) - 1;
        let first = if others == 0 { self.calls } else { self.calls * FIRST / 10 };
        match instance {
            0 => first + (self.calls - first) % others.max(1),
            _ => (self.calls - first) / others,
        }
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let options = [("instances", 4), ("at-once", 8), ("calls", 160)];
    let [instances, at_once, calls] = instances::options(options)?;
    let options = Options { instances, at_once, calls: calls.into() };
    let instances = Instances::start(options.instances).await?;
    let (managers, kind) = (&instances.managers, instances.kept);
    println!(
        "API quota: {} instances ({kind}), {} calls, at most {} at once\n",
        options.instances, options.calls, options.at_once
    );
    println!("                       answered  refused  at once  in use    time");
    make_calls("without a limit", Way::NoLimit, &options, managers).await?;
    make_calls("a share each", Way::Shares, &options, managers).await?;
    let partner = make_calls("permits for all", Way::Permits, &options, managers).await?;
    let is_right =
        partner.refused.load(SeqCst) == 0 && partner.answered.load(SeqCst) == options.calls;
    let shown = "With permits: no call was one too many, whichever instance made it.";
    Ok(instances.end(shown, is_right).await)
}

/// All calls of all instances, each call a task.
async fn make_calls(
    what: &str,
    way: Way,
    options: &Options,
    instances: &[LockManager],
) -> Result<Arc<Partner>, Error> {
    let name = format!("{}-{way:?}", std::process::id());
    let partner = Arc::new(Partner::new(name, options.at_once));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for (instance, locks) in (0..).zip(instances) {
        let share = (options.at_once / options.instances).max(1) as usize;
        let share = Arc::new(Semaphore::new(share));
        for _ in 0..options.calls_of(instance) {
            let (partner, locks, share) = (partner.clone(), locks.clone(), share.clone());
            calls.spawn(async move {
                match way {
                    Way::NoLimit => partner.answer().await,
                    Way::Shares => {
                        let _of_this_instance = share.acquire().await?;
                        partner.answer().await;
                    }
                    Way::Permits => call(&partner, &locks).await?,
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    let took = start.elapsed().as_secs_f64();
    let figure = |of: &AtomicU64| of.load(SeqCst);
    // How busy the partner was, of how busy it could have been in that time.
    let busy = Duration::from_micros(figure(&partner.busy_micros)).as_secs_f64();
    println!(
        "  {what:<17}    {:>8}  {:>7}  {:>7}  {:>4.0} %  {took:>4.1} s",
        figure(&partner.answered),
        figure(&partner.refused),
        figure(&partner.most_at_once),
        100.0 * busy / (took * f64::from(options.at_once)),
    );
    Ok(partner)
}
