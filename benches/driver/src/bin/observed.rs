//! One way of calling for `scripts/observed`, which says what it is for: one task that takes and frees a lock again and
//! again, in memory or on a Redis, and prints what that took.
//!
//! ```sh
//! observed [--prometheus] [--url URL] [--calls N] [--rounds N]
//! ```
#![allow(clippy::print_stdout, reason = "scripts/observed reads it")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, redis_lock};

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
    if std::env::args().any(|arg| arg == "--prometheus") {
        record();
    }
    let url = option("--url").unwrap_or_else(|| "memory://".to_owned());
    distlock::init(LockManager::connect(&url).await?)?;
    let (calls, rounds) = (number("--calls", 20_000), number("--rounds", 9));
    let mut times = Vec::new();
    let begin = Instant::now();
    for _ in 0..=rounds {
        let start = now(begin);
        for id in 0..calls {
            locked(black_box(id % 64)).await?;
        }
        times.push((now(begin) - start).as_secs_f64() * 1e9 / calls as f64);
    }
    // The first one has warmed up.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    println!("{:.2}", times.first().copied().unwrap_or_default());
    Ok(())
}

/// What this thread has had of a processor, where the system says so: what else the machine does does not
/// count. On Redis it is the time of the clock, as that is what callers wait for.
fn now(begin: Instant) -> Duration {
    let in_memory = !std::env::args().any(|arg| arg == "--url");
    let stat =
        in_memory.then(|| std::fs::read_to_string("/proc/thread-self/schedstat").ok()).flatten();
    let nanos = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| begin.elapsed(), Duration::from_nanos)
}

#[cfg(feature = "metrics")]
fn record() {
    let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
    let builder = builder.set_buckets(distlock::metrics::BUCKETS).expect("buckets");
    builder.install_recorder().expect("the only recorder");
}

#[cfg(not(feature = "metrics"))]
fn record() {
    panic!("built without the feature `metrics`");
}
