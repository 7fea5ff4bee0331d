//! A lock on a quorum of three servers that eight processes want all the time, while one server after the other
//! restarts without its data: one at a time, and fencing tokens that grow. And what a lock costs while one of the
//! servers stands still, beside what it costs while all are up.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{LONG, Quorum, RedisServer, connect, data_at, fork_self, in_fork, ms};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::block_in_place;

use crate::effort::Effort;
use crate::report::{Report, percentile};
use crate::stamp::{between, now};

const NAME: &str = "redlock";
const KEY: &str = "redlock";
const SERVERS: usize = 3;
const PROCESSES: usize = 8;
/// Of a lease, and for how long a server that has restarted does not count.
const TTL: Duration = Duration::from_secs(2);
/// From one restart to the next: only one server is new at a time, by uptimes that are whole seconds.
const APART: Duration = Duration::from_secs(5);
/// Locks in a row with all servers up, and with one that stands still, in turns.
const IN_A_ROW: u64 = 250;
/// The p99 with one that stands still, to that with all up.
const AT_MOST: f64 = 1.2;

/// Runs it; an effort of times counts grants, of which the locks in a row are a twentieth part. The child processes
/// come in here, too, and do not return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let mut report = Report::default();
    let alone = match effort {
        Effort::Times(times) => Effort::Times(times / 20),
        Effort::Time(time) => Effort::Time(time / 4),
    };
    one_stands_still(alone, &mut report).await;
    restarts(effort, &mut report).await;
    report
}

/// What locks took that nobody else wants.
#[derive(Default)]
struct Took {
    taken: Vec<Duration>,
    released: Vec<Duration>,
}

impl Took {
    async fn locks(&mut self, manager: &LockManager) -> u64 {
        let mut failed = 0;
        for n in 0..IN_A_ROW {
            let begun = Instant::now();
            match manager.lock(format!("alone-{n}")).ttl(LONG).acquire().await {
                Ok(guard) => {
                    self.taken.push(begun.elapsed());
                    let begun = Instant::now();
                    failed += u64::from(guard.release().await.is_err());
                    self.released.push(begun.elapsed());
                }
                Err(_) => failed += 1,
            }
        }
        failed
    }
}

async fn one_stands_still(effort: Effort, report: &mut Report) {
    let quorum = Quorum::of(SERVERS);
    let manager = connect(&quorum.url()).await;
    let (mut all_up, mut frozen, mut failed) = (Took::default(), Took::default(), 0);
    let (begun, mut round) = (Instant::now(), 0);
    while effort.goes_on(2 * IN_A_ROW * round, begun) || round < 2 {
        failed += all_up.locks(&manager).await;
        let still = &quorum.nodes[round as usize % SERVERS];
        block_in_place(|| still.stop());
        if round % 2 == 1 {
            // It is known not to answer: a command has taken too long.
            let known = manager.lock("known").acquire().await;
            drop(known);
            tokio::time::sleep(ms(1500)).await;
        }
        failed += frozen.locks(&manager).await;
        still.cont();
        tokio::time::sleep(ms(200)).await;
        round += 1;
    }
    let taken = all_up.taken.len() + frozen.taken.len();
    for (what, up, still) in
        [("a lock", all_up.taken, frozen.taken), ("a release", all_up.released, frozen.released)]
    {
        let ratio = percentile(&still, 0.99).as_secs_f64() / percentile(&up, 0.99).as_secs_f64();
        report.spread(&format!("{what}, all up"), up, LONG);
        report.spread(&format!("{what}, one stands still"), still, LONG);
        report.figure(format!("{what}: p99 to p99"), format!("{ratio:.2}"));
        let past = format!("{what}: the p99 is {ratio:.2} times that with all up, not {AT_MOST}");
        report.past_if(ratio > AT_MOST, past);
    }
    let text = format!("{failed} locks failed with a majority up");
    // On a busy machine two servers may be too late for a command's time.
    report.past_if(failed > 0, text.as_str());
    report.violated_if(failed * 10 > taken as u64, text);
}

async fn restarts(effort: Effort, report: &mut Report) {
    let mut quorum = block_in_place(|| Quorum::of(SERVERS));
    let server = RedisServer::start();
    let url = quorum.url_with(&format!("guard={}s", TTL.as_secs()));
    // None of them counts before.
    tokio::time::sleep(APART).await;
    let goal = match effort {
        Effort::Times(times) => times,
        Effort::Time(_) => u64::MAX,
    };
    let goal = goal.to_string();
    let env = [("SOAK_QUORUM", &*url), ("SOAK_DATA_URL", &*server.url()), ("SOAK_GOAL", &goal)]
        .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(NAME, &env)).collect();
    let mut data = data_at(&server.url()).await;
    let (begun, mut restarts) = (Instant::now(), 0);
    let (mut last, mut restarted) = ((0, begun), begun);
    let stuck = loop {
        tokio::time::sleep(ms(200)).await;
        let grants: u64 = data.llen("ledger").await.expect("LLEN");
        if grants > last.0 {
            last = (grants, Instant::now());
        }
        if !effort.goes_on(grants, begun) || last.1.elapsed() > LONG {
            break last.1.elapsed() > LONG;
        }
        if restarted.elapsed() > APART || restarts == 0 {
            block_in_place(|| quorum.nodes[restarts % SERVERS].restart_empty());
            (restarts, restarted) = (restarts + 1, Instant::now());
        }
    };
    let took = begun.elapsed();
    data.set::<_, _, ()>("over", 1).await.expect("SET");
    let done = all_done(&mut data).await;
    drop(children);
    let ledger: Vec<String> = data.lrange("ledger", 0, -1).await.expect("LRANGE");
    let errors: Vec<String> = data.lrange("errors", 0, -1).await.expect("LRANGE");
    let per_second = ledger.len() as f64 / took.as_secs_f64();
    report.figure("grants", format!("{} in {took:.1?}, {per_second:.0} a second", ledger.len()));
    report.figure("restarts without data meanwhile", restarts);
    report.figure("calls that failed", errors.len());
    if let Some(first) = errors.first() {
        report.figure("the first of them", first);
    }
    report.violated_if(stuck, "nothing goes on");
    report.violated_if(done < PROCESSES, format!("only {done} processes came to their end"));
    judge(&ledger, report);
}

/// How many of the processes have ended, once all have, or none does any more.
async fn all_done(data: &mut MultiplexedConnection) -> usize {
    let begun = Instant::now();
    loop {
        let done: usize = data.get("done").await.unwrap_or(0);
        if done == PROCESSES || begun.elapsed() > LONG {
            return done;
        }
        tokio::time::sleep(ms(20)).await;
    }
}

fn judge(ledger: &[String], report: &mut Report) {
    let entries: Vec<Vec<u64>> = ledger
        .iter()
        .map(|text| text.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let is_next = |two: &&[Vec<u64>]| two[1][0] == two[0][0] + 1;
    let doubles = entries.windows(2).filter(|two| !is_next(two)).count();
    report.figure("two at once", doubles);
    report.violated_if(doubles > 0, format!("two at once: {doubles} times"));
    let back = entries.windows(2).filter(|two| two[1][1] <= two[0][1]).count();
    report.figure("fencing tokens that did not grow", back);
    report.violated_if(back > 0, format!("{back} fencing tokens did not grow"));
    let mut processes: Vec<_> = entries.iter().map(|entry| entry[2]).collect();
    processes.sort_unstable();
    processes.dedup();
    report.figure("processes that had it", processes.len());
    report.violated_if(ledger.is_empty(), "nobody had the lock");
    let waits = entries.iter().map(|entry| Duration::from_nanos(entry[3])).collect();
    report.spread("from the call to the lock", waits, LONG);
}

/// One of the processes. Ends when it is killed.
async fn child() -> Report {
    let variable = |name: &str| std::env::var(name).expect("what it is told");
    let goal: u64 = variable("SOAK_GOAL").parse().expect("a number");
    let mut data = data_at(&variable("SOAK_DATA_URL")).await;
    let builder = LockManager::builder().url(variable("SOAK_QUORUM")).ttl(TTL);
    let manager = builder.build().expect("a manager");
    let process = u64::from(std::process::id());
    loop {
        let arrived = now();
        let guard = match manager.lock(KEY).wait(LONG).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let text = format!("{error}: {}", source.unwrap_or_default());
                data.rpush::<_, _, ()>("errors", text).await.expect("RPUSH");
                continue;
            }
        };
        let (waited, fence) = (between(arrived, now()).as_nanos(), guard.fencing_token());
        let mut look = redis::pipe();
        look.get("number").exists("over");
        let (number, over): (Option<u64>, bool) = look.query_async(&mut data).await.expect("GET");
        let number = number.unwrap_or(0);
        if over || number >= goal {
            break;
        }
        // Only who still has the lock may go on.
        if guard.is_held() {
            let mut write = redis::pipe();
            let entry = format!("{} {fence} {process} {waited}", number + 1);
            write.set("number", number + 1).rpush("ledger", entry);
            write.query_async::<()>(&mut data).await.expect("SET");
        }
        drop(guard);
    }
    manager.close(LONG).await;
    data.incr::<_, _, ()>("done", 1).await.expect("INCR");
    std::future::pending().await
}
