//! One way of calling for `scripts/observed`, which says what it is for: one task that takes and frees a lock again and
//! again, in memory or on a Redis. For each line it reads it prints what a call took, in nanoseconds.
//!
//! ```sh
//! observed [--prometheus] [--url URL] [--calls N] [--warm N]
//! ```
#![allow(clippy::print_stdout, reason = "scripts/observed reads it")]

use std::hint::black_box;
use std::io::BufRead;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, redis_lock};
use rustix::time::{ClockId, clock_gettime};

#[redis_lock(key = "order:{order_id}", name = "orders::pay")]
async fn locked(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let option = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
    let number = |name, default: u64| {
        option(name).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let record = std::env::args().any(|arg| arg == "--prometheus");
    let recorder = record.then(Recorder::install);
    let url = option("--url");
    distlock::init(LockManager::connect(url.as_deref().unwrap_or("memory://")).await?)?;
    let (calls, warm) = (number("--calls", 1_000), number("--warm", 250));
    for line in std::io::stdin().lock().lines() {
        line.expect("a line");
        // What ran before on this processor has left nothing of ours in its caches.
        take(warm).await?;
        let start = Times::now();
        take(calls).await?;
        let took = start.elapsed(url.is_none());
        println!("{:.2}", took.as_secs_f64() * 1e9 / calls as f64);
        // As a thread of the exporter does in programs, every few seconds.
        recorder.iter().for_each(Recorder::keep_up);
    }
    Ok(())
}

async fn take(calls: u64) -> Result<(), LockError> {
    for id in 0..calls {
        locked(black_box(id % 64)).await?;
    }
    Ok(())
}

struct Times {
    of_clock: Instant,
    of_thread: Duration,
}

impl Times {
    fn now() -> Self {
        Self { of_clock: Instant::now(), of_thread: of_thread() }
    }

    /// In memory, what this thread has had of a processor: what else the machine does does not count. On Redis
    /// the time of the clock, as that is what callers wait for.
    fn elapsed(&self, in_memory: bool) -> Duration {
        if in_memory { of_thread() - self.of_thread } else { self.of_clock.elapsed() }
    }
}

fn of_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

#[cfg(feature = "metrics")]
struct Recorder(metrics_exporter_prometheus::PrometheusHandle);

#[cfg(feature = "metrics")]
impl Recorder {
    fn install() -> Self {
        let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
        let builder = builder.set_buckets(distlock::metrics::BUCKETS).expect("buckets");
        Self(builder.install_recorder().expect("the only recorder"))
    }

    fn keep_up(&self) {
        self.0.run_upkeep();
    }
}

#[cfg(not(feature = "metrics"))]
struct Recorder;

#[cfg(not(feature = "metrics"))]
impl Recorder {
    fn install() -> Self {
        panic!("built without the feature `metrics`");
    }

    fn keep_up(&self) {}
}
