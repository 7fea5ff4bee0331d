//! How quick the server answers, and what its clock says.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::__console::StoreReply;
use distlock::LockManager;

use super::client::{Server, text};
use super::finding::Finding;
use crate::failure::describe;

const QUESTIONS: usize = 100;
/// All questions together take no longer than this.
const LONGEST: Duration = Duration::from_secs(3);
/// A lease is renewed after a third of its ttl: answers must come much sooner than that.
const SLOW: Duration = Duration::from_millis(100);
/// For so long the server's clock is watched.
const WATCHED: Duration = Duration::from_millis(300);
/// More than that is no drift.
const JUMP: Duration = Duration::from_millis(50);
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

pub(super) async fn clock(server: &Server<'_>) -> Finding {
    const CHECK: &str = "clock";
    let unknown = || Finding::unknown(CHECK, "the server does not tell its time");
    let Some(first) = Reading::take(server).await else { return unknown() };
    tokio::time::sleep(WATCHED).await;
    let Some(last) = Reading::take(server).await else { return unknown() };
    if let Some(jump) = last.jumped_since(&first) {
        return Finding::warn(
            CHECK,
            format!("the server's went {} wrong within {}", shown(jump), shown(WATCHED)),
            "have its machine's clock slewed and not set: a lease ends early or late by each jump",
        );
    }
    // Somewhere between the question and the answer.
    let ahead = last.theirs.saturating_sub(last.after);
    let behind = last.before.saturating_sub(last.theirs);
    let (apart, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if apart <= APART {
        return Finding::ok(CHECK, "the server's is as ours, and goes as fast");
    }
    let apart = humantime::format_duration(Duration::from_secs(apart.as_secs()));
    Finding::warn(
        CHECK,
        format!("the server's is {apart} {word} ours; fencing tokens are drawn from it"),
        "have both follow a time server: a clock that is set back while data is lost repeats tokens",
    )
}

/// The server's clock, read once.
struct Reading {
    theirs: Duration,
    /// Ours, before and after.
    before: Duration,
    after: Duration,
    /// The same on a monotonic clock.
    asked: Instant,
    answered: Instant,
}

impl Reading {
    async fn take(server: &Server<'_>) -> Option<Self> {
        let (before, asked) = (now(), Instant::now());
        let answer = server.answer(&["TIME"]).await?;
        let (after, answered) = (now(), Instant::now());
        let StoreReply::List(parts) = answer else { return None };
        let seconds = text(parts.first()?)?.parse().ok()?;
        let micros = text(parts.get(1)?)?.parse().ok()?;
        let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
        Some(Self { theirs, before, after, asked, answered })
    }

    /// By how much their clock has moved differently from ours since an earlier reading, if it is much.
    fn jumped_since(&self, first: &Self) -> Option<Duration> {
        let (least, most) = (self.asked - first.answered, self.answered - first.asked);
        let jump = match self.theirs.checked_sub(first.theirs) {
            Some(theirs) => theirs.saturating_sub(most).max(least.saturating_sub(theirs)),
            None => first.theirs - self.theirs + least,
        };
        (jump > JUMP).then_some(jump)
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
