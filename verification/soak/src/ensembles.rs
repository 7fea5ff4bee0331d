//! A lock in a store of three servers that four processes want all the time, while one server after the other is killed,
//! stands still or is out of the processes' reach, the leader before all, and at times two at once: one holder at a time,
//! fencing tokens that grow over every election, and every process served once a majority is there again.
//!
//! The ledger is a list elsewhere: each body reads a number, waits, and writes the next one. Two at once write one number
//! twice. The processes reach each server over a proxy of its own. The servers reach each other directly: members of etcd
//! have one address for all others, so that a proxy could not tell which to cut off; to the others, one that
//! is cut off is one that stands still.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{
    Ensemble, Fork, LONG, Member, Mode, Proxy, RedisServer, data_at, fork_self, in_fork, ms,
    whole_text,
};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::{JoinSet, block_in_place};

use crate::effort::{Dice, Effort};
use crate::report::Report;
use crate::stamp::{between, now};

const KEY: &str = "ensemble";
const PROCESSES: usize = 4;
const TASKS: usize = 2;
const SERVERS: usize = 3;
/// Longer than any fault: no lease is lost for it.
const TTL: Duration = Duration::from_secs(12);
/// By then the lock is held again, once a majority is there.
const SOON: Duration = Duration::from_secs(15);

/// How long it is run by default.
pub const WHILE: Effort = Effort::Time(Duration::from_secs(60));

/// What happens to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    LeaderKilled,
    LeaderStands,
    FollowerKilled,
    MajorityStands,
    LeaderOutOfReach,
    AnyReset,
}

const FAULTS: [(Fault, &str); 6] = [
    (Fault::LeaderKilled, "leaders killed"),
    (Fault::LeaderStands, "leaders that stood still"),
    (Fault::LeaderOutOfReach, "leaders out of reach"),
    (Fault::FollowerKilled, "followers killed"),
    (Fault::MajorityStands, "majorities that stood still"),
    (Fault::AnyReset, "networks reset"),
];

/// The servers, and the networks to them.
struct Store<P: Member> {
    servers: Ensemble<P>,
    networks: Vec<Proxy>,
    elections: usize,
}

impl<P: Member> Store<P> {
    fn start() -> Self {
        let servers = Ensemble::start();
        let networks = servers.addrs().into_iter().map(Proxy::to).collect();
        Self { servers, networks, elections: 0 }
    }

    fn url(&self) -> String {
        let addrs: Vec<_> = self.networks.iter().map(Proxy::addr).collect();
        self.servers.url_at(&addrs)
    }

    /// Lets something happen, for a while, and mends it.
    fn suffer(&mut self, fault: Fault, dice: &mut Dice) {
        let leader = self.servers.leader();
        let follower = (leader + 1 + dice.below(2) as usize) % SERVERS;
        let wait = |most: u64, dice: &mut Dice| std::thread::sleep(ms(100 + dice.below(most)));
        match fault {
            Fault::LeaderKilled => self.servers.kill9(leader),
            Fault::LeaderStands => self.servers.stop(leader),
            Fault::FollowerKilled => self.servers.kill9(follower),
            Fault::MajorityStands => {
                self.servers.stop(leader);
                self.servers.stop(follower);
            }
            Fault::LeaderOutOfReach => self.networks[leader].set(Mode::Freeze),
            Fault::AnyReset => self.networks[dice.below(3) as usize].set(Mode::Reset),
        }
        if matches!(fault, Fault::LeaderKilled | Fault::LeaderStands) {
            self.servers.leader();
            self.elections += 1;
        }
        wait(1500, dice);
        self.servers.revive(leader);
        self.servers.revive(follower);
        for network in &self.networks {
            // What was held back is lost: a connection that stood still may be gone.
            if fault == Fault::LeaderOutOfReach && dice.below(2) == 0 {
                network.set(Mode::Reset);
            }
            network.set(Mode::Pass);
        }
        let now_leads = self.servers.leader();
        self.elections += usize::from(fault == Fault::MajorityStands && now_leads != leader);
    }
}

/// Runs it; an effort of times counts faults. The child processes come in here, too, and do not return.
pub async fn run<P: Member>(name: &str, effort: Effort, seed: u64) -> Report {
    if in_fork() {
        return child().await;
    }
    let (mut store, server) = block_in_place(|| (Store::<P>::start(), RedisServer::start()));
    let env = [("SOAK_ENSEMBLE", store.url()), ("SOAK_DATA_URL", server.url())];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(name, &env)).collect();
    let mut data = data_at(&server.url()).await;
    let mut report = Report::default();
    let (begun, mut dice) = (Instant::now(), Dice(seed));
    let (mut suffered, mut served_again, mut stuck) = (Vec::new(), Vec::new(), false);
    while !stuck && effort.goes_on(suffered.len() as u64, begun) {
        // The first ones in turn, and then as the dice fall.
        let at = match suffered.len() {
            count if count < FAULTS.len() => count,
            _ => dice.below(FAULTS.len() as u64) as usize,
        };
        stuck = !goes_on(&mut data).await;
        block_in_place(|| store.suffer(FAULTS[at].0, &mut dice));
        suffered.push(FAULTS[at].0);
        let mended = Instant::now();
        stuck |= !goes_on(&mut data).await;
        served_again.push(mended.elapsed());
    }
    let took = begun.elapsed();
    data.set::<_, _, ()>("over", 1).await.expect("SET");
    let done = all_done(&mut data).await;
    end(children);
    report.violated_if(stuck, "no process is served any more");
    report.violated_if(done < PROCESSES, format!("only {done} processes came to their end"));
    for (fault, words) in FAULTS {
        report.figure(words, suffered.iter().filter(|other| **other == fault).count());
    }
    report.figure("elections", store.elections);
    report.spread("from the mending to the next lock", served_again, SOON);
    judge(&mut data, took, &mut report).await;
    let left = block_in_place(|| left_after(&store));
    report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
    report
}

/// Some more locks were taken, each after the one before it.
async fn goes_on(data: &mut MultiplexedConnection) -> bool {
    const SOME: usize = 3;
    let (begun, mut first) = (Instant::now(), None);
    loop {
        let taken: usize = data.llen("ledger").await.expect("LLEN");
        if taken >= *first.get_or_insert(taken) + SOME {
            return true;
        }
        if begun.elapsed() > 2 * LONG {
            return false;
        }
        tokio::time::sleep(ms(5)).await;
    }
}

/// How many of the processes have ended, once all have, or none does any more.
async fn all_done(data: &mut MultiplexedConnection) -> usize {
    let begun = Instant::now();
    loop {
        let done: usize = data.get("done").await.unwrap_or(0);
        if done == PROCESSES || begun.elapsed() > 2 * LONG {
            return done;
        }
        tokio::time::sleep(ms(20)).await;
    }
}

fn end(children: Vec<Fork>) {
    children.into_iter().for_each(Fork::kill9);
}

fn left_after<P: Member>(store: &Store<P>) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let left = store.servers.left();
        if left.is_empty() || begun.elapsed() > LONG {
            return left;
        }
        std::thread::sleep(ms(50));
    }
}

async fn judge(data: &mut MultiplexedConnection, took: Duration, report: &mut Report) {
    let ledger: Vec<String> = data.lrange("ledger", 0, -1).await.expect("LRANGE");
    let errors: Vec<String> = data.lrange("errors", 0, -1).await.expect("LRANGE");
    let per_second = ledger.len() as f64 / took.as_secs_f64();
    report.figure("locks", format!("{} in {took:.1?}, {per_second:.0} a second", ledger.len()));
    report.figure("calls that failed", errors.len());
    if let Some(first) = errors.first() {
        report.figure("the first of them", first);
    }
    let lost: u64 = data.get("lost").await.unwrap_or(0);
    report.figure("leases lost", lost);
    // Number, fencing token, process, nanoseconds from the call to the lock.
    let entries: Vec<Vec<u64>> = ledger
        .iter()
        .map(|text| text.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let doubles = entries.windows(2).filter(|two| two[1][0] != two[0][0] + 1).count();
    report.violated_if(doubles > 0, format!("two at once: {doubles} times"));
    let back = entries.windows(2).filter(|two| two[1][1] <= two[0][1]).count();
    report.violated_if(back > 0, format!("{back} fencing tokens did not grow"));
    let mut processes: Vec<_> = entries.iter().map(|entry| entry[2]).collect();
    processes.sort_unstable();
    processes.dedup();
    report.violated_if(processes.len() < PROCESSES, format!("only {processes:?} had the lock"));
    let waits = entries.iter().map(|entry| Duration::from_nanos(entry[3])).collect();
    report.spread("from the call to the lock", waits, SOON);
}

/// One of the processes. Ends when it is killed.
async fn child() -> Report {
    let variable = |name: &str| std::env::var(name).expect("its parent's variable");
    let mut data = data_at(&variable("SOAK_DATA_URL")).await;
    let builder = LockManager::builder().url(variable("SOAK_ENSEMBLE")).ttl(TTL);
    let manager = builder.command_timeout(ms(1500)).outage_grace(LONG).build().expect("a manager");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, data) = (manager.clone(), data.clone());
        tasks.spawn(locks(manager, data, Dice(now() + task as u64)));
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    manager.close(LONG).await;
    data.incr::<_, _, ()>("done", 1).await.expect("INCR");
    std::future::pending().await
}

/// Takes the lock until it is over.
async fn locks(manager: LockManager, mut data: MultiplexedConnection, mut dice: Dice) {
    while !data.exists::<_, bool>("over").await.expect("EXISTS") {
        let arrived = now();
        let guard = match manager.lock(KEY).wait(4 * LONG).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                data.rpush::<_, _, ()>("errors", whole_text(&error)).await.expect("RPUSH");
                continue;
            }
        };
        let (waited, fence) = (between(arrived, now()).as_nanos(), guard.fencing_token());
        let number: u64 = data.get::<_, Option<u64>>("number").await.expect("GET").unwrap_or(0);
        tokio::time::sleep(ms(1 + dice.below(4))).await;
        // Only a process that still has the lock may go on.
        if guard.is_held() {
            let mut write = redis::pipe();
            let entry = format!("{} {fence} {} {waited}", number + 1, std::process::id());
            write.set("number", number + 1).rpush("ledger", entry);
            write.query_async::<()>(&mut data).await.expect("SET");
        } else {
            data.incr::<_, _, ()>("lost", 1).await.expect("INCR");
        }
        drop(guard);
    }
}
