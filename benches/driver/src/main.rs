//! The driver of distlock for `scripts/bench`, which says what a driver does. Uses the public API
//! with its default options, as the drivers of peers do with theirs; as `distlock-bench background` it
//! does not wait for its releases, as `distlock-bench own-io` the caller's runtime drives no connection.
//! As `distlock-bench mutex` it is the floor of locks inside one process, for `hot1` alone: the tasks
//! take turns at a `tokio::sync::Mutex`.
#![allow(clippy::print_stdout, reason = "scripts/bench reads it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, Release};
use tokio::sync::Mutex;

/// Longer than any run: what is measured is how long waiting takes, not who gives up.
const WAIT: Duration = Duration::from_secs(600);

#[derive(Clone)]
struct Scenario {
    mode: String,
    tasks: usize,
    time: Duration,
    release: Release,
}

fn option(name: &str) -> String {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1).unwrap_or_else(|| panic!("{name} is missing; see scripts/bench"))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), LockError> {
    let variant = std::env::args().nth(1);
    let scenario = Scenario {
        mode: option("--scenario"),
        tasks: option("--tasks").parse().expect("a number of tasks"),
        time: Duration::from_secs_f64(option("--seconds").parse().expect("a number of seconds")),
        release: match variant.as_deref() {
            Some("background") => Release::Background,
            _ => Release::Wait,
        },
    };
    if variant.as_deref() == Some("mutex") {
        start();
        let mutex = Arc::new(Mutex::new(()));
        return busy(&scenario, |_| Subject::Mutex(mutex.clone())).await;
    }
    let builder = LockManager::builder().url(option("--url"));
    let by_callers = variant.as_deref() != Some("own-io");
    let manager = builder.io_on_caller_runtime(by_callers).connect().await?;
    let own = format!("warm-up:{}", std::process::id());
    manager.lock(own).acquire().await?.release().await?;
    start();
    match scenario.mode.as_str() {
        "idle" => idle(&manager, &scenario).await,
        mode => {
            let key = |task| match mode {
                "own" => format!("own:{task}:{}", std::process::id()),
                _ => "hot".to_owned(),
            };
            let (manager, release) = (&manager, scenario.release);
            let lock = |task| Subject::Lock { manager: manager.clone(), key: key(task), release };
            busy(&scenario, lock).await
        }
    }
}

/// All processes of a round start together.
fn start() {
    println!("READY");
    std::io::stdin().read_line(&mut String::new()).expect("the word to start");
}

/// One holder, many who wait for it.
async fn idle(manager: &LockManager, scenario: &Scenario) -> Result<(), LockError> {
    let held = manager.lock("hot").acquire().await?;
    let waiters: Vec<_> = (1..scenario.tasks)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let guard = manager.lock("hot").wait(WAIT).acquire().await?;
                let at = Instant::now();
                guard.release().await?;
                Ok::<_, LockError>(at)
            })
        })
        .collect();
    tokio::time::sleep(scenario.time).await;
    let released = Instant::now();
    held.release().await?;
    let mut times = Vec::new();
    for waiter in waiters {
        let at = waiter.await.expect("a waiter does not panic")?;
        times.push(at.duration_since(released).as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (first, drain) = (times[0], times[times.len() - 1]);
    let locks = scenario.tasks;
    println!(r#"{{"locks": {locks}, "per_task": [1], "first_ms": {first}, "drain_ms": {drain}}}"#);
    Ok(())
}

/// What a task takes and gives back.
enum Subject {
    Lock { manager: LockManager, key: String, release: Release },
    Mutex(Arc<Mutex<()>>),
}

impl Subject {
    /// One turn; says how long it was waited for.
    async fn turn(&self) -> Result<Duration, LockError> {
        let start = Instant::now();
        match self {
            Self::Lock { manager, key, release } => {
                let request = manager.lock(key.clone()).wait(WAIT);
                if *release == Release::Background {
                    return request.release(*release).run(async { start.elapsed() }).await;
                }
                let guard = request.acquire().await?;
                let waited = start.elapsed();
                guard.release().await?;
                Ok(waited)
            }
            Self::Mutex(mutex) => {
                let guard = mutex.lock().await;
                let waited = start.elapsed();
                drop(guard);
                Ok(waited)
            }
        }
    }
}

/// Each task locks and unlocks as fast as it can, its own key or the one all share.
async fn busy(scenario: &Scenario, subject: impl Fn(usize) -> Subject) -> Result<(), LockError> {
    let stop = Instant::now() + scenario.time;
    let tasks: Vec<_> = (0..scenario.tasks)
        .map(|task| {
            let subject = subject(task);
            tokio::spawn(async move {
                let (mut locks, mut us) = (0_u64, Vec::new());
                while Instant::now() < stop {
                    us.push(subject.turn().await?.as_micros());
                    locks += 1;
                }
                Ok::<_, LockError>((locks, us))
            })
        })
        .collect();
    let (mut per_task, mut us) = (Vec::new(), Vec::new());
    for task in tasks {
        let (locks, times) = task.await.expect("a task does not panic")?;
        per_task.push(locks);
        us.extend(times.into_iter().step_by(7));
    }
    let locks: u64 = per_task.iter().sum();
    println!(r#"{{"locks": {locks}, "per_task": {per_task:?}, "us": {us:?}}}"#);
    Ok(())
}
