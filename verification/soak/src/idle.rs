//! What an idle manager sends.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{RedisServer, wait_for};

use crate::effort::Effort;
use crate::report::Report;

/// Longer than any usual interval of keep-alives.
pub const WHILE: Duration = Duration::from_secs(120);
/// Between two looks, of which each is a command.
const LOOK: Duration = Duration::from_millis(250);

/// One manager with all its connections and its record, and one that has none.
pub async fn run(effort: Effort) -> Report {
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for identify in [true, false] {
        let builder = LockManager::builder().url(server.url()).identify(identify);
        managers.push(builder.connect().await.expect("connect"));
    }
    for manager in &managers {
        manager.lock("k").run(async {}).await.expect("free");
    }
    wait_for("both listen, and have written their records", async || {
        let before = sent(&server);
        tokio::time::sleep(Duration::from_secs(1)).await;
        sent(&server) == before
    })
    .await;
    let (before, start) = (sent(&server), Instant::now());
    while effort.goes_on(0, start) {
        tokio::time::sleep(LOOK).await;
    }
    let commands = sent(&server) - before;
    let mut report = Report::default();
    report.figure("idle managers", managers.len());
    report.figure("watched for", format!("{:.0?}", start.elapsed()));
    report.figure("commands that they sent", commands);
    report.violated_if(commands > 0, format!("{commands} commands for nothing"));
    report
}

/// How many commands the server has run, those that ask for it aside.
fn sent(server: &RedisServer) -> u64 {
    let info: String = server.cli(&["INFO", "commandstats"]);
    let calls = info.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let is_asking = ["info", "hello", "client|setinfo", "select"].contains(&name);
        rest.split(',').next()?.parse::<u64>().ok().filter(|_| !is_asking)
    });
    calls.sum()
}
