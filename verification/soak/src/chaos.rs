//! Processes that wait for one lock and hold it, killed at random: every live waiter is served, one
//! at a time, in order of arrival, and a dead one does not hold up the next for long.
//!
//! The ledger is a list: each body reads its length, waits, and writes the next entry under the
//! number it read. Two at once write one number twice.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use distlock_testkit::{Fork, LONG, RedisServer, data_at, fork_self, in_fork, patient_builder};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::report::Report;
use crate::stamp::{between, now};

const NAME: &str = "chaos";
const KEY: &str = "chaos";
const PROCESSES: usize = 6;
const TASKS: usize = 3;
const TTL: Duration = Duration::from_secs(2);
/// How long a reserved lock is kept for a process that may have died.
const CLAIM: Duration = Duration::from_secs(1);
/// A waiter behind the dead holder that was not notified looks after this at the latest.
const LOOK: Duration = Duration::from_secs(5);
/// Arrivals closer together may be served either way: they are stamped before they are sent, and
/// local callers are let in until a message says that others wait.
const NEIGHBOURS: Duration = Duration::from_millis(100);
/// The same on a machine that is busy.
const NEIGHBOURS_AT_WORST: Duration = Duration::from_secs(1);

/// One body, as it is in the ledger.
struct Entry {
    process: usize,
    number: u64,
    arrived: u64,
    began: u64,
    ended: u64,
    fence: u64,
}

impl Entry {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(' ').map(str::parse::<u64>);
        let mut next = || parts.next()?.ok();
        let process = usize::try_from(next()?).ok()?;
        let (number, arrived, began) = (next()?, next()?, next()?);
        Some(Self { process, number, arrived, began, ended: next()?, fence: next()? })
    }
}

/// A process that was killed.
struct Death {
    at: u64,
    /// It held the lock, or the lock was reserved for it.
    had_the_lock: bool,
}

fn start(place: usize, number: usize, server: &RedisServer) -> Fork {
    let (place, number) = (place.to_string(), number.to_string());
    let env = [
        ("DISTLOCK_URL", &*server.url()),
        ("SOAK_DATA_URL", &*server.url_of_db(1)),
        ("SOAK_PLACE", &*place),
        ("SOAK_NUMBER", &*number),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    fork_self(NAME, &env)
}

/// Runs it; an effort of times counts deaths. The child processes come in here, too, and do not
/// return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let server = RedisServer::start();
    let mut data = data_at(&server.url_of_db(1)).await;
    let mut children: Vec<_> = (0..PROCESSES).map(|n| (start(n, n, &server), n)).collect();
    let (begun, mut dice, mut deaths) = (Instant::now(), Dice(11), Vec::new());
    let mut number = PROCESSES;
    let mut report = Report::default();
    while !is_at_work(&mut data, &children).await {
        if begun.elapsed() > LONG {
            report.violated_if(true, "the processes do not begin");
            return report;
        }
    }
    let begun = Instant::now();
    while effort.goes_on(deaths.len() as u64, begun) {
        tokio::time::sleep(Duration::from_millis(100 + dice.below(900))).await;
        let place = dice.below(PROCESSES as u64) as usize;
        let name: Option<String> =
            data.get(format!("name:{}", children[place].1)).await.expect("GET");
        let (child, _) =
            std::mem::replace(&mut children[place], (start(place, number, &server), number));
        number += 1;
        child.kill9();
        let at = now();
        let owner: Option<String> = server.cli(&["GET", &format!("distlock:lock:{{{KEY}}}")]);
        let had_the_lock = match (owner, name) {
            (Some(owner), Some(name)) => owner.starts_with(&name),
            _ => false,
        };
        deaths.push(Death { at, had_the_lock });
    }
    let took = begun.elapsed();
    data.set::<_, _, ()>("over", 1).await.expect("SET");
    let done = wait_for_the_end(&mut data, &children).await;
    report.violated_if(done < children.len(), format!("only {done} processes came to their end"));
    drop(children);

    let errors: Vec<String> = data.lrange("errors", 0, -1).await.expect("LRANGE");
    for error in &errors {
        report.violated_if(true, format!("a live waiter was not served: {error}"));
    }
    let ledger: Vec<String> = data.lrange("ledger", 0, -1).await.expect("LRANGE");
    let ledger: Vec<_> = ledger.iter().filter_map(|text| Entry::read(text)).collect();
    report.figure("killed", deaths.len());
    report
        .figure("of them with the lock", deaths.iter().filter(|death| death.had_the_lock).count());
    report.figure("took", format!("{took:.1?}"));
    report.figure("bodies", ledger.len());
    judge(&ledger, &deaths, &mut report);
    let left = nothing_left_after(&server).await;
    report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
    report
}

async fn is_at_work(data: &mut MultiplexedConnection, children: &[(Fork, usize)]) -> bool {
    tokio::time::sleep(Duration::from_millis(20)).await;
    for (_, number) in children {
        if !data.exists::<_, bool>(format!("name:{number}")).await.expect("EXISTS") {
            return false;
        }
    }
    true
}

/// How many processes have ended by themselves.
async fn wait_for_the_end(data: &mut MultiplexedConnection, children: &[(Fork, usize)]) -> usize {
    let start = Instant::now();
    loop {
        let mut done = 0;
        for (_, number) in children {
            let ended: bool = data.exists(format!("done:{number}")).await.expect("EXISTS");
            done += usize::from(ended);
        }
        if done == children.len() || start.elapsed() > 2 * LONG {
            return done;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What is there of locks once the last one may have expired.
async fn nothing_left_after(server: &RedisServer) -> Vec<String> {
    let start = Instant::now();
    loop {
        let left = server.lock_keys();
        if left.is_empty() || start.elapsed() > LONG / 2 {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn judge(ledger: &[Entry], deaths: &[Death], report: &mut Report) {
    let wrong = ledger.iter().zip(1..).find(|(entry, place)| entry.number != *place);
    report.violated_if(
        wrong.is_some(),
        format!("two bodies at once, at {:?}", wrong.map(|(_, n)| n)),
    );
    let back = ledger.windows(2).filter(|two| two[0].fence >= two[1].fence).count();
    report.violated_if(back > 0, format!("{back} fencing tokens that did not grow"));
    report.violated_if(ledger.len() < 10, "hardly anything was done");

    // Only waiters are held up: the lock may also be free because no process wants it.
    let (mut idle, mut after_death) = (Vec::new(), Vec::new());
    for two in ledger.windows(2) {
        let free_from = two[0].ended.max(two[1].arrived);
        let pause = between(free_from, two[1].began);
        let holder_died = deaths
            .iter()
            .filter(|death| death.had_the_lock)
            .find(|death| two[0].ended <= death.at && death.at <= two[1].began);
        match holder_died {
            Some(death) => after_death.push(between(death.at.max(two[1].arrived), two[1].began)),
            None => idle.push(pause),
        }
    }
    let worst = idle.iter().max().copied().unwrap_or_default();
    let worst_after_death = after_death.iter().max().copied().unwrap_or_default();
    report
        .violated_if(worst > CLAIM + LOOK, format!("free for {worst:.1?} while there is a waiter"));
    let bound = TTL + CLAIM;
    report.violated_if(
        worst_after_death > bound + LOOK,
        format!("free for {worst_after_death:.1?} after a holder had died"),
    );
    report.spread("free while there is a waiter", idle, CLAIM);
    report.spread("next one after the holder died", after_death, bound);

    let (mut overtaken, mut most) = (0, 0);
    for (at, entry) in ledger.iter().enumerate() {
        let before = ledger[..at].iter().rev().take_while(|other| other.ended > entry.arrived);
        let later = |other: &&Entry| between(entry.arrived, other.arrived) > NEIGHBOURS;
        let later: Vec<_> = before.filter(later).collect();
        overtaken += usize::from(!later.is_empty());
        most = most.max(later.len());
        // After the death of a holder a newcomer may come first, with all callers of its process that come
        // before it can hear that others wait.
        let dead = deaths.iter().filter(|death| {
            death.had_the_lock && death.at <= entry.began && between(death.at, entry.arrived) < LOOK
        });
        let allowed = dead.count();
        let worse = |other: &&Entry| between(entry.arrived, other.arrived) > NEIGHBOURS_AT_WORST;
        let others: Vec<_> = later.into_iter().filter(worse).collect();
        let turns: Vec<_> = others.chunk_by(|one, next| one.process == next.process).collect();
        // The latest comes first here.
        let longest = turns.iter().map(|turn| between(turn[turn.len() - 1].began, turn[0].ended));
        let longest = longest.max().unwrap_or_default();
        report.violated_if(
            turns.len() > allowed || longest > NEIGHBOURS_AT_WORST,
            format!(
                "{} was overtaken by {} processes, not {allowed}, for {longest:.1?}",
                entry.number,
                turns.len()
            ),
        );
    }
    let value = format!("{overtaken} times, by {most} at most");
    report.figure(format!("overtaken by one that came {NEIGHBOURS:?} later"), value);
    let waits: Vec<_> = ledger.iter().map(|entry| between(entry.arrived, entry.began)).collect();
    report.spread("waited", waits, LONG);
    let mut each: HashMap<usize, usize> = HashMap::new();
    ledger.iter().for_each(|entry| *each.entry(entry.process).or_default() += 1);
    let (least, most) = (each.values().min().copied(), each.values().max().copied());
    report.figure("bodies per place", format!("{} to {}", least.unwrap_or(0), most.unwrap_or(0)));
}

/// One of the processes. Ends when it is killed.
async fn child() -> Report {
    let place = std::env::var("SOAK_PLACE").expect("its place");
    let number = std::env::var("SOAK_NUMBER").expect("its number");
    let url = std::env::var("DISTLOCK_URL").expect("where the locks are");
    // The server is always there: if it is slow to answer, the machine is busy.
    let manager = patient_builder(&url).build().expect("a manager");
    let mut data = data_at(&std::env::var("SOAK_DATA_URL").expect("its data")).await;
    // What its tokens begin with, so that the parent knows whose lock it is.
    let own = format!("own-{number}");
    let guard = manager.lock(&*own).wait(LONG).acquire().await.expect("it is free");
    let token = format!("distlock:lock:{{{own}}}");
    let token: String = data_at(&url).await.get(token).await.expect("GET");
    guard.release().await.expect("it was held");
    let process = token.split('.').next().unwrap_or_default().to_owned();
    data.clone().set::<_, _, ()>(format!("name:{number}"), process).await.expect("SET");

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (manager, mut data, place) = (manager.clone(), data.clone(), place.clone());
        let mut dice = Dice(now() + task as u64);
        tasks.spawn(async move {
            while !data.exists::<_, bool>("over").await.expect("EXISTS") {
                let arrived = now();
                let mut ledger = data.clone();
                let body = async {
                    let began = now();
                    let lease = manager.lock(KEY).reentrant(true).acquire().await;
                    let fence = lease.expect("it is held here").fencing_token();
                    let number: u64 = ledger.llen("ledger").await.expect("LLEN");
                    tokio::time::sleep(Duration::from_millis(1 + dice.below(4))).await;
                    // As late as can be: the lock is still held after it.
                    let entry =
                        format!("{place} {} {arrived} {began} {} {fence}", number + 1, now());
                    ledger.rpush::<_, _, ()>("ledger", entry).await.expect("RPUSH");
                };
                let request = manager.lock(KEY).ttl(TTL).wait(LONG);
                if let Err(error) = request.run(body).await {
                    data.rpush::<_, _, ()>("errors", error.to_string()).await.expect("RPUSH");
                }
                // Sometimes at once, sometimes after a while.
                tokio::time::sleep(Duration::from_millis(dice.below(3) * dice.below(20))).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    manager.close(LONG).await;
    data.set::<_, _, ()>(format!("done:{number}"), 1).await.expect("SET");
    std::future::pending().await
}
