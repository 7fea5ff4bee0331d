//! How quick the server answers, and what its clock says.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::__console::StoreReply;
use distlock::LockManager;

use super::finding::Finding;
use crate::locks::{command, text};
use crate::store::describe;

const QUESTIONS: usize = 100;
/// All questions together take no longer than this.
const LONGEST: Duration = Duration::from_secs(3);
/// A lease is renewed after a third of its ttl: answers must come much sooner than that.
const SLOW: Duration = Duration::from_millis(100);
/// Between the server's clock and ours.
const APART: Duration = Duration::from_secs(2);

pub(super) async fn latency(manager: &LockManager) -> Finding {
    const CHECK: &str = "latency";
    let begin = Instant::now();
    let mut took = Vec::new();
    while took.len() < QUESTIONS && begin.elapsed() < LONGEST {
        match manager.ping().await {
            Ok(time) => took.push(time),
            Err(error) => {
                let mend = "a lock that is not renewed in time is lost: look at the network and the server";
                return Finding::fail(CHECK, describe(&error), mend);
            }
        }
    }
    took.sort();
    let part = |hundredths: usize| took[(took.len() - 1) * hundredths / 100];
    let (p50, p99) = (part(50), part(99));
    let text = format!("p50 {}, p99 {}", shown(p50), shown(p99));
    match p99 > SLOW {
        false => Finding::ok(CHECK, text),
        true => Finding::warn(
            CHECK,
            text,
            format!("give leases a ttl of {} at least, or find what is slow", shown(p99 * 30)),
        ),
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

pub(super) async fn clock(manager: &LockManager) -> Finding {
    const CHECK: &str = "clock";
    let unknown = || Finding::unknown(CHECK, "the server does not tell its time");
    let before = now();
    let Ok(answers) = manager.ask_store(vec![command(&["TIME"])]).await else { return unknown() };
    let after = now();
    let Some(StoreReply::List(parts)) = answers.first() else { return unknown() };
    let seconds = parts.first().and_then(text).and_then(|seconds| seconds.parse().ok());
    let micros = parts.get(1).and_then(text).and_then(|micros| micros.parse().ok());
    let (Some(seconds), Some(micros)) = (seconds, micros) else { return unknown() };
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
    // Somewhere between the question and the answer.
    let ahead = theirs.saturating_sub(after);
    let behind = before.saturating_sub(theirs);
    let (apart, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if apart <= APART {
        return Finding::ok(CHECK, "the server's is as ours");
    }
    let apart = humantime::format_duration(Duration::from_secs(apart.as_secs()));
    Finding::warn(
        CHECK,
        format!("the server's is {apart} {word} ours; fencing tokens are drawn from it"),
        "have both follow a time server: a clock that is set back while data is lost repeats tokens",
    )
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
