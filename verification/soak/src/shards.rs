//! Primaries of a cluster that are killed until their replicas have taken their place: how soon after its shard takes
//! writes again a lock is granted there, and that the locks of other shards are given meanwhile, but for the time in
//! which the cluster itself refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{Cluster, LONG, RedisServer, connect, ms};
use tokio::task::block_in_place;

use crate::effort::Effort;
use crate::report::Report;

const SHARDS: usize = 3;
/// From the moment that the shard takes writes.
const FIRST_GRANT: Duration = Duration::from_millis(200);
/// What a lock of another shard may take beyond the time in which its shard refuses writes.
const BEYOND: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Findings {
    /// From the kill until the shard takes writes.
    followed: Vec<Duration>,
    first_grants: Vec<Duration>,
    /// For how long another shard refused writes.
    refused: Vec<Duration>,
    /// The longest that a lock there took, beyond that.
    beyond: Vec<Duration>,
    elsewhere: u64,
    fence: u64,
    wrong: Vec<String>,
}

/// Runs it; an effort of times counts kills.
pub async fn run(effort: Effort) -> Report {
    let mut cluster = block_in_place(|| Cluster::start(SHARDS, 1));
    let manager = connect(&cluster.url()).await;
    let keys: Vec<String> = (0..SHARDS).map(|shard| cluster.key_at(shard)).collect();
    let (start, mut findings, mut rounds) = (Instant::now(), Findings::default(), 0);
    while effort.goes_on(rounds, start) {
        let shard = rounds as usize % SHARDS;
        let killed = (&*keys[shard], &*keys[(shard + 1) % SHARDS]);
        kill(&mut cluster, killed, &manager, &mut findings).await;
        rounds += 1;
    }
    let mut report = Report::default();
    report.figure("primaries killed", rounds);
    report.spread("the shard takes writes again", findings.followed, LONG);
    report.spread("first grant after that", findings.first_grants, FIRST_GRANT);
    report.figure("locks of another shard meanwhile", findings.elsewhere);
    report.spread("that shard refuses writes for", findings.refused, LONG);
    report.spread("the longest of those locks, beyond that", findings.beyond, BEYOND);
    for wrong in findings.wrong {
        report.violated_if(true, wrong);
    }
    report
}

/// Kills the primary of the first key; the second one is in another shard.
async fn kill(
    cluster: &mut Cluster,
    (key, other): (&str, &str),
    manager: &LockManager,
    findings: &mut Findings,
) {
    let primary = cluster.primary_of(cluster.slot(key));
    let replica = (primary + SHARDS) % (2 * SHARDS);
    // The link to it is in use when it dies.
    let before = manager.lock(key).wait(LONG).run(async {}).await;
    findings.wrong_if(before.is_err(), "no lock before the kill");
    let over = Arc::new(AtomicBool::new(false));
    let refusals = watched(cluster, other, &over);
    let locks = tokio::spawn(locks(manager.clone(), other.to_owned(), over.clone()));
    cluster.kill9(primary);
    let killed = Instant::now();
    let call = manager.lock(key).wait(LONG).acquire();
    let call = tokio::spawn(async move { (call.await, Instant::now()) });
    let probe = format!("{{{key}}}:probe");
    let writable = block_in_place(|| writable(cluster.node(replica), &probe));
    let (guard, granted) = call.await.expect("no panic");
    match guard {
        Ok(guard) => {
            let grows = guard.fencing_token() > findings.fence;
            findings.wrong_if(!grows, "a fencing token is not above the one before");
            findings.fence = guard.fencing_token();
            findings.wrong_if(guard.release().await.is_err(), "a lock was lost");
        }
        Err(error) => findings.wrong_if(true, &format!("a call that waits is not served: {error}")),
    }
    findings.followed.push(writable.duration_since(killed));
    findings.first_grants.push(granted.saturating_duration_since(writable));
    // The cluster may refuse elsewhere for a moment more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    over.store(true, SeqCst);
    let refused = block_in_place(|| refusals.join().expect("no panic"));
    let (count, longest) = locks.await.expect("no panic");
    findings.wrong_if(count == 0, "no lock of another shard");
    findings.elsewhere += count;
    findings.refused.push(refused);
    findings.beyond.push(longest.saturating_sub(refused));
    block_in_place(|| {
        cluster.restart(primary);
        cluster.wait_until_whole();
    });
}

/// When a server first takes a write.
fn writable(server: &RedisServer, key: &str) -> Instant {
    let mut eye = server.eye();
    loop {
        let wrote: Result<(), _> =
            redis::cmd("SET").arg(key).arg(1).arg("PX").arg(1).query(&mut eye);
        if wrote.is_ok() {
            return Instant::now();
        }
        thread::sleep(LOOK);
    }
}

/// How long the shard of this key refuses writes, from the first to the last time.
fn watched(cluster: &Cluster, key: &str, over: &Arc<AtomicBool>) -> thread::JoinHandle<Duration> {
    let server = cluster.node(cluster.primary_of(cluster.slot(key)));
    let (mut eye, key, over) = (server.eye(), format!("{{{key}}}:probe"), over.clone());
    thread::spawn(move || {
        let (mut first, mut last) = (None, None);
        while !over.load(SeqCst) {
            let asked = Instant::now();
            let wrote: Result<(), _> =
                redis::cmd("SET").arg(&key).arg(1).arg("PX").arg(1).query(&mut eye);
            if wrote.is_err() {
                first.get_or_insert(asked);
                last = Some(Instant::now());
            }
            thread::sleep(LOOK);
        }
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.duration_since(first))
    })
}

/// Takes a lock again and again; how often, and the longest time that one took.
async fn locks(manager: LockManager, key: String, over: Arc<AtomicBool>) -> (u64, Duration) {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !over.load(SeqCst) {
        let asked = Instant::now();
        if manager.lock(&*key).wait(LONG).run(async {}).await.is_ok() {
            count += 1;
            longest = longest.max(asked.elapsed());
        }
        tokio::time::sleep(ms(5)).await;
    }
    (count, longest)
}

impl Findings {
    fn wrong_if(&mut self, wrong: bool, what: &str) {
        if wrong {
            self.wrong.push(format!("kill {}: {what}", self.followed.len() + 1));
        }
    }
}
