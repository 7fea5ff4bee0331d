//! Calls with `min_hold` on keys of their own: what stays of each while the store keeps its lock.

use std::time::Duration;

use distlock_testkit::{RedisServer, connect};
use tokio::task::JoinSet;

use crate::figures::status;
use crate::report::Report;

const AN_HOUR: Duration = Duration::from_secs(3600);
const TASKS: usize = 50;
/// Bytes for each call.
const MOST: u64 = 32;

/// Makes so many calls, and then as many whose locks are kept.
pub async fn run(calls: usize) -> Report {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let all = async |name: &'static str, keep: Duration| {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let manager = manager.clone();
            tasks.spawn(async move {
                for n in 0..calls / TASKS {
                    let key = format!("{name}-{task}-{n}");
                    manager.lock(key).min_hold(keep).run(async {}).await.expect("granted");
                }
            });
        }
        tasks.join_all().await;
    };
    all("free", Duration::ZERO).await;
    let memory = status("VmRSS");
    all("kept", AN_HOUR).await;
    let more = status("VmRSS").saturating_sub(memory) * 1024 / calls as u64;
    let mut report = Report::default();
    report.figure("calls with `min_hold`", calls);
    report.figure("memory that stays for each", format!("{more} B"));
    report.violated_if(server.lock_keys().len() != calls, "locks are missing at the server");
    report.past_if(more > MOST, format!("{more} bytes stay for each call"));
    report
}
