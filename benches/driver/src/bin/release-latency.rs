//! How long a key outlives its holder, for each way a holder can end: the time from the end until
//! the server's own key list no longer has it. Starts a redis-server of its own.
//!
//! ```sh
//! cargo run --release -p distlock-bench --bin release-latency
//! ```
#![allow(clippy::print_stdout, reason = "the table is its answer")]

use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager};
use distlock_testkit::RedisServer;
use tokio::runtime::Runtime;

const ROUNDS: usize = 200;
/// Far below the default ttl: a key that is there for so long was forgotten.
const BOUND: Duration = Duration::from_secs(10);

/// How a holder ends. Called with the runtime it lives on and the guard it has; returns when its
/// end began.
type End = fn(Runtime, LockGuard) -> Instant;

const ENDS: [(&str, End); 5] = [
    ("release().await", |runtime, guard| {
        let start = Instant::now();
        runtime.block_on(guard.release()).expect("released");
        start
    }),
    ("dropped in a task", |runtime, guard| {
        runtime.block_on(async {
            let start = Instant::now();
            drop(guard);
            start
        })
    }),
    ("panic in a task", |runtime, guard| {
        let (tell, told) = std::sync::mpsc::channel();
        let task = runtime.spawn(async move {
            let _guard = guard;
            // The listener outlives this task.
            let _ = tell.send(Instant::now());
            // Not `panic!`: printing the message would be part of the time.
            std::panic::resume_unwind(Box::new(()));
        });
        runtime.block_on(task).expect_err("it panics");
        told.recv().expect("the task ran")
    }),
    ("runtime dropped", |runtime, guard| {
        runtime.spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        let start = Instant::now();
        drop(runtime);
        start
    }),
    ("dropped on a plain thread", |_runtime, guard| {
        let thread = thread::spawn(move || {
            let start = Instant::now();
            drop(guard);
            start
        });
        thread.join().expect("the thread does not panic")
    }),
];

fn main() -> Result<(), LockError> {
    let server = RedisServer::start();
    let client = redis::Client::open(server.unix_url()).expect("a URL");
    let mut eye = client.get_connection().expect("connect");
    let manager = runtime().block_on(LockManager::connect(&server.url()))?;

    println!("time until the key is gone, {ROUNDS} rounds\n");
    println!("| holder's end | median µs | p99 µs | worst µs |");
    println!("|---|---|---|---|");
    for (name, end) in ENDS {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let runtime = runtime();
            let guard = runtime.block_on(manager.lock("key").acquire())?;
            let key = "distlock:lock:{key}";
            assert!(exists(&mut eye, key), "the key is not where this program looks");
            let start = end(runtime, guard);
            while exists(&mut eye, key) {
                assert!(start.elapsed() < BOUND, "{name}: the key was not freed");
            }
            times.push(start.elapsed().as_micros());
        }
        times.sort_unstable();
        let (median, p99) = (times[ROUNDS / 2], times[ROUNDS * 99 / 100]);
        println!("| {name} | {median} | {p99} | {} |", times[ROUNDS - 1]);
    }
    Ok(())
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

fn exists(eye: &mut redis::Connection, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(eye).expect("EXISTS")
}
