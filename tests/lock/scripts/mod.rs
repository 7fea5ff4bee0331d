//! What each script does to a lock, one at a time on a real server: which token holds it afterwards, which is
//! notified, and when it ends.

mod alone;
mod amiss;
mod permits;
mod readers;

use distlock_testkit::{Args, Bench};

const PROCESSES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn bench() -> Bench {
    Bench::new(&PROCESSES)
}

/// For so many ms.
fn lasting(ttl: u64) -> Args {
    Args { ttl, ..Args::default() }
}

/// From a place that it had before.
fn from(ticket: u64) -> Args {
    Args { ticket, ..Args::default() }
}

/// A message about a token.
fn about(kind: &str, token: &str) -> [String; 1] {
    [format!("{kind} {token}")]
}
