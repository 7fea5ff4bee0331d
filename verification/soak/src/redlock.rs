//! A lock on a quorum of three servers that eight processes want all the time, while one server after the other
//! restarts without its data: one at a time, and fencing tokens that grow. And what a lock costs while one of the
//! servers stands still, beside what it costs while all are up.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{LONG, Quorum, RedisServer, data_at, fork_self, in_fork, ms, whole_text};
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
/// So soon a server that stands still no more has heard of all that was given back.
const FREED: Duration = Duration::from_secs(10);
/// Locks in a row, in each turn.
const IN_A_ROW: u64 = 200;
/// Each so many rounds the server that stands still is known to.
const SELDOM: u64 = 2;
/// The p99 with one that stands still, to that with all up in the turn before.
const AT_MOST: f64 = 1.2;

/// Runs it; an effort of times counts grants, of which the locks in a row are a fifth part. The child processes
/// come in here, too, and do not return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let mut report = Report::default();
    let alone = match effort {
        Effort::Times(times) => Effort::Times(times / 5),
        Effort::Time(time) => Effort::Time(time / 4),
    };
    one_stands_still(alone, &mut report).await;
    restarts(effort, &mut report).await;
    report
}

/// What uncontended locks took.
#[derive(Default)]
struct Took {
    taken: Vec<Duration>,
    released: Vec<Duration>,
    /// The p99s of a turn, to those of the turn with all up before it: a machine that is busy for a moment spoils one
    /// turn, and not the figure.
    ratios: Vec<P99>,
    failed: Vec<String>,
}

/// Of taking a lock, and of giving it back.
type P99 = [f64; 2];

impl Took {
    /// Takes locks in a row, in a turn after one that had these p99s.
    async fn turn(&mut self, manager: &LockManager, before: Option<P99>) -> P99 {
        let (mut taken, mut released) = (Vec::new(), Vec::new());
        for n in 0..IN_A_ROW {
            let begun = Instant::now();
            match manager.lock(format!("alone-{n}")).ttl(LONG).acquire().await {
                Ok(guard) => {
                    taken.push(begun.elapsed());
                    let begun = Instant::now();
                    if let Err(error) = guard.release().await {
                        self.failed.push(whole_text(&error));
                    }
                    released.push(begun.elapsed());
                }
                Err(error) => self.failed.push(whole_text(&error)),
            }
        }
        let p99 = [&taken, &released].map(|took| percentile(took, 0.99).as_secs_f64());
        self.ratios.extend(before.map(|before| [p99[0] / before[0], p99[1] / before[1]]));
        self.taken.append(&mut taken);
        self.released.append(&mut released);
        p99
    }

    fn report(&self, name: &str, report: &mut Report) {
        let both = [("a lock", &self.taken), ("a release", &self.released)];
        for (at, (what, took)) in both.into_iter().enumerate() {
            report.spread(&format!("{what}, {name}"), took.clone(), LONG);
            if self.ratios.is_empty() {
                continue;
            }
            let mut ratios: Vec<_> = self.ratios.iter().map(|ratio| ratio[at]).collect();
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios[ratios.len() / 2];
            let value = format!("{ratio:.2} (median of {} turns)", ratios.len());
            report.figure(format!("{what}, {name}: p99 to p99"), value);
            let past = format!("{what}, {name}: the p99 is {ratio:.2} times that with all up");
            report.past_if(ratio > AT_MOST, past);
        }
    }
}

/// Locks without an owner, by the server that keeps them.
fn kept(quorum: &Quorum) -> HashSet<(usize, String)> {
    let nodes = quorum.nodes.iter().enumerate();
    nodes.flat_map(|(at, node)| node.held_locks().into_iter().map(move |key| (at, key))).collect()
}

/// In turns all servers are up, one was just stopped, and every now and then it is known not to answer.
async fn one_stands_still(effort: Effort, report: &mut Report) {
    let quorum = Quorum::of(SERVERS);
    // A command without an answer is noticed after half a second, and the connection is left after a second more.
    let builder = LockManager::builder().url(quorum.url()).command_timeout(ms(500));
    let manager = builder.connect().await.expect("connect");
    let [mut up, mut stopped, mut known] = [Took::default(), Took::default(), Took::default()];
    let mut left = HashSet::new();
    let (begun, mut round) = (Instant::now(), 0);
    while effort.goes_on(2 * IN_A_ROW * round, begun) || round < 2 {
        let before = up.turn(&manager, None).await;
        let still = &quorum.nodes[round as usize % SERVERS];
        block_in_place(|| still.stop());
        stopped.turn(&manager, Some(before)).await;
        if round % SELDOM == 1 {
            tokio::time::sleep(ms(1800)).await;
            known.turn(&manager, Some(before)).await;
        }
        still.cont();
        // It does what it was sent meanwhile, and is connected to again. What it has not heard to be free yet is not
        // free where the next server stands still.
        let begun = Instant::now();
        loop {
            let kept = block_in_place(|| kept(&quorum));
            if kept.is_subset(&left) {
                break;
            }
            if begun.elapsed() > FREED {
                left.extend(kept);
                break;
            }
            tokio::time::sleep(ms(20)).await;
        }
        tokio::time::sleep(ms(if round % SELDOM == 1 { 1000 } else { 50 })).await;
        round += 1;
    }
    let taken = up.taken.len() + stopped.taken.len() + known.taken.len();
    let text = format!("{} locks were kept by a server that had stood still", left.len());
    report.violated_if(!left.is_empty(), text);
    let failed = [&up, &stopped, &known].map(|took| took.failed.clone()).concat();
    up.report("all up", report);
    stopped.report("one was just stopped", report);
    known.report("one is known to stand still", report);
    if let Some(first) = failed.first() {
        report.figure("the first lock that failed", first);
    }
    let text = format!("{} locks failed with a majority up", failed.len());
    // On a busy machine two servers may be too late for a command's time.
    report.past_if(!failed.is_empty(), text.as_str());
    report.violated_if(failed.len() * 10 > taken, text);
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
    report.violated_if(ledger.is_empty(), "the lock was never granted");
    let waits = entries.iter().map(|entry| Duration::from_nanos(entry[3])).collect();
    report.spread("from the call to the lock", waits, LONG);
}

/// One of the processes. Ends when it is killed.
async fn child() -> Report {
    let variable = |name: &str| std::env::var(name).expect("its parent's variable");
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
        // Only a process that still has the lock may go on.
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
