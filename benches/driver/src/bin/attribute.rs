//! What the attribute adds to a call: the same function plain and locked on the in-memory store, where
//! nothing but the library's own work is left.
//!
//! ```sh
//! cargo run --release -p distlock-bench --bin attribute
//! ```
#![allow(clippy::print_stdout, reason = "the table is its answer")]

use std::hint::black_box;
use std::time::Instant;

use distlock::{LockError, LockManager, redis_lock};
use tokio::runtime::Runtime;

/// Rounds are interleaved, so that what else the machine does meets all ways of calling alike.
const ROUNDS: usize = 21;
const CALLS: u64 = 20_000;

async fn plain(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

#[redis_lock(key = "order:{order_id}")]
async fn locked(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

#[redis_lock(key = "orders")]
async fn constant_key(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

#[redis_lock(keys = ["account:{order_id}", "account:0"])]
async fn two_keys(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

#[redis_lock(key = "order:{order_id}", when = order_id > CALLS)]
async fn when_false(order_id: u64) -> Result<u64, LockError> {
    Ok(black_box(order_id))
}

/// A way of calling, done `CALLS` times; returns nanoseconds for each.
type Way = fn(&Runtime) -> f64;

macro_rules! way {
    ($function:ident) => {
        |runtime| {
            runtime.block_on(async {
                let start = Instant::now();
                for id in 1..=CALLS {
                    $function(black_box(id)).await.expect("nobody else locks here");
                }
                start.elapsed().as_secs_f64() * 1e9 / CALLS as f64
            })
        }
    };
}

const WAYS: [(&str, Way); 5] = [
    ("plain", way!(plain)),
    ("`when` is false", way!(when_false)),
    ("locked", way!(locked)),
    ("locked, a constant key", way!(constant_key)),
    ("locked, two keys", way!(two_keys)),
];

fn main() -> Result<(), LockError> {
    distlock::init(LockManager::in_memory())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut times = WAYS.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, way), times) in WAYS.iter().zip(&mut times) {
            times.push(way(&runtime));
        }
    }
    println!("{ROUNDS} rounds of {CALLS} calls, one task, in memory\n");
    println!("| call | median ns | best ns | worst ns | × plain |");
    println!("|---|---|---|---|---|");
    let mut base = None;
    for ((name, _), times) in WAYS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let (best, median, worst) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        let ratio = median / *base.get_or_insert(median);
        println!("| {name} | {median:.1} | {best:.1} | {worst:.1} | {ratio:.1} |");
    }
    Ok(())
}
