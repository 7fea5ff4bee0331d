//! The driver of distlock for `scripts/bench`, which says what a driver does. Uses the public API
//! with its default options, as the drivers of peers do with theirs; as `distlock-bench background` it
//! does not wait for its releases, as `distlock-bench own-io` the caller's runtime drives no connection.
//! As `distlock-bench mutex` it is the floor of locks inside one process, for `hot1` alone: the tasks
//! take turns at a `tokio::sync::Mutex`.
#![allow(clippy::print_stdout, reason = "scripts/bench reads it")]

mod busy;
mod crash;
mod served;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LockManager, Release};
use tokio::sync::Mutex;

use subject::{Subject, Taking};

#[derive(Clone)]
struct Scenario {
    mode: String,
    tasks: usize,
    time: Duration,
    /// Which process of the round this is.
    process: usize,
    permits: u32,
}

fn option(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1)
}

fn required(name: &str) -> String {
    option(name).unwrap_or_else(|| panic!("{name} is missing; see scripts/bench"))
}

/// All processes of a round start together.
fn start() {
    println!("READY");
    next_line();
}

fn next_line() {
    std::io::stdin().read_line(&mut String::new()).expect("the word to go on");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), LockError> {
    let number = |name, default: u32| {
        option(name).map_or(default, |text| text.parse().expect("a whole number"))
    };
    let variant = std::env::args().nth(1);
    let scenario = Scenario {
        mode: required("--scenario"),
        tasks: required("--tasks").parse().expect("a number of tasks"),
        time: Duration::from_secs_f64(required("--seconds").parse().expect("a number of seconds")),
        process: number("--process", 0) as usize,
        permits: number("--permits", 1),
    };
    if variant.as_deref() == Some("mutex") {
        start();
        let mutex = Arc::new(Mutex::new(()));
        return busy::busy(&scenario, |_| Subject::Mutex(mutex.clone())).await;
    }
    let release = match variant.as_deref() {
        Some("background") => Release::Background,
        _ => Release::Wait,
    };
    let builder = LockManager::builder().url(required("--url"));
    let by_callers = variant.as_deref() != Some("own-io");
    let manager = builder.io_on_caller_runtime(by_callers).connect().await?;
    let own = format!("warm-up:{}", std::process::id());
    manager.lock(own).acquire().await?.release().await?;
    if scenario.mode.starts_with("crash") {
        return crash::crash(&manager, &scenario).await;
    }
    start();
    let lock = |key: &str, taking| Subject::lock(&manager, key, release, taking);
    let permits = Taking::Permit(scenario.permits);
    match scenario.mode.as_str() {
        "idle" => served::idle(&manager, &scenario).await,
        "run" => served::run(&manager, &scenario).await,
        "own" => {
            let key = |task| format!("own:{task}:{}", std::process::id());
            busy::busy(&scenario, |task| lock(&key(task), Taking::Alone)).await
        }
        "same" => busy::busy(&scenario, |_| lock("hot", Taking::Alone)).await,
        "read" => busy::busy(&scenario, |_| lock("hot", Taking::Read)).await,
        "mix" => busy::busy(&scenario, |_| lock("hot", Taking::Mixed)).await,
        "starve" => busy::starve(&manager, &scenario).await,
        "sem" => busy::busy(&scenario, |_| lock("hot", permits)).await,
        other => panic!("no scenario {other}"),
    }
}
