//! Checks of the server's latency and of its clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::LockManager;

use super::client::{ServerClient, text};
use super::finding::Finding;
use crate::admin::StoreReply;
use crate::exit::describe;

/// The number of pings.
const PINGS: usize = 100;
/// The longest time for all pings together.
const LONGEST_PINGS: Duration = Duration::from_secs(3);
/// Replies must arrive much sooner than a third of the ttl, when a lease is renewed.
const SLOW: Duration = Duration::from_millis(100);
/// The time between two readings of the server's clock.
const OBSERVATION: Duration = Duration::from_millis(300);
/// A larger deviation is no drift, but a jump.
const JUMP: Duration = Duration::from_millis(50);
/// The largest difference between the server's clock and the local one that is not reported.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Measures the round trip.
pub(super) async fn latency(manager: &LockManager) -> Finding {
    const CHECK: &str = "latency";
    let begin = Instant::now();
    let mut took = Vec::new();
    while took.len() < PINGS && begin.elapsed() < LONGEST_PINGS {
        match manager.ping().await {
            Ok(time) => took.push(time),
            Err(error) => {
                let hint = "a lock that is not renewed in time is lost: look at the network and the server";
                return Finding::fail(CHECK, describe(&error), hint);
            }
        }
    }
    took.sort();
    let part = |hundredths: usize| took[(took.len() - 1) * hundredths / 100];
    let (p50, p99) = (part(50), part(99));
    let text = format!("p50 {}, p99 {}", millis(p50), millis(p99));
    match p99 > SLOW {
        false => Finding::ok(CHECK, text),
        true => Finding::warn(
            CHECK,
            text,
            format!("give leases a ttl of {} at least, or find what is slow", millis(p99 * 30)),
        ),
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Compares the server's clock with the local one, and watches it for jumps.
pub(super) async fn clock(server: &ServerClient<'_>) -> Finding {
    const CHECK: &str = "clock";
    let unknown = || Finding::unknown(CHECK, "the server does not tell its time");
    let Some(first) = ClockReading::take(server).await else { return unknown() };
    tokio::time::sleep(OBSERVATION).await;
    let Some(last) = ClockReading::take(server).await else { return unknown() };
    if let Some(jump) = last.jumped_since(&first) {
        return Finding::warn(
            CHECK,
            format!("the server's went {} wrong within {}", millis(jump), millis(OBSERVATION)),
            "have its machine's clock slewed and not set: a lease ends early or late by each jump",
        );
    }
    // The server read its clock at some time between the command and the reply.
    let ahead = last.theirs.saturating_sub(last.after);
    let behind = last.before.saturating_sub(last.theirs);
    let (apart, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if apart <= TOLERANCE {
        return Finding::ok(CHECK, "the server's is as ours, and goes as fast");
    }
    let apart = humantime::format_duration(Duration::from_secs(apart.as_secs()));
    Finding::warn(
        CHECK,
        format!("the server's is {apart} {word} ours; fencing tokens are drawn from it"),
        "have both follow a time server: a clock that is set back while data is lost repeats tokens",
    )
}

/// A reading of the server's clock.
struct ClockReading {
    theirs: Duration,
    /// The local clock, before and after.
    before: Duration,
    after: Duration,
    /// The monotonic clock, before and after.
    sent: Instant,
    received: Instant,
}

impl ClockReading {
    async fn take(server: &ServerClient<'_>) -> Option<Self> {
        let (before, sent) = (now(), Instant::now());
        let reply = server.send(&["TIME"]).await?;
        let (after, received) = (now(), Instant::now());
        let StoreReply::List(parts) = reply else { return None };
        let seconds = text(parts.first()?)?.parse().ok()?;
        let micros = text(parts.get(1)?)?.parse().ok()?;
        let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
        Some(Self { theirs, before, after, sent, received })
    }

    /// Returns how much the server's clock has moved differently from the local one since an earlier reading, if that is a
    /// jump.
    fn jumped_since(&self, first: &Self) -> Option<Duration> {
        let (least, most) = (self.sent - first.received, self.received - first.sent);
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
