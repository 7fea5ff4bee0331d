//! Calls that are dropped at any await, as by a timeout around them. A connection goes back to its pool then, as it is.

use std::time::Duration;

use crate::server::Server;
use crate::way::{Locker, Way};

pub(crate) const CALLS: u64 = 500;

/// What is left in the server, and whether the next one gets the lock.
pub(crate) async fn left_behind(way: &Way, server: &Server) -> String {
    let (one, other) = (Locker::new(way, server).await, Locker::new(way, server).await);
    let busy = tokio::spawn(async move {
        loop {
            other.lock(9, Duration::from_millis(2)).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let mut random = 1_u64;
    for _ in 0..CALLS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let limit = Duration::from_micros((random >> 33) % 4000);
        let _ = tokio::time::timeout(limit, one.lock(9, Duration::from_millis(1))).await;
    }
    // The holder keeps it for some milliseconds.
    busy.abort();
    let _ = busy.await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    const HELD: &str =
        "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 9)
        + (SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction')";
    let server_side = server.postgres();
    let held = server_side.sql(HELD).parse::<usize>().expect("a number");
    let stuck = held + distlock_testkit::conformance::Subject::left(server_side).len();
    let third = Locker::new(way, server).await;
    let next = tokio::time::timeout(Duration::from_secs(5), third.lock(9, Duration::ZERO)).await;
    let next =
        if next.is_ok() { "the next one has the lock" } else { "the next one waits for ever" };
    format!("held by nobody: {stuck}; {next}")
}
