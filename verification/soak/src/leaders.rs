//! Processes that campaign, and whose leader is killed, stopped, cut off or resigns, again and again. No two
//! may lead at once, whichever way they are asked, tokens must grow, and the next one must not be late.

use std::time::{Duration, Instant};

use distlock::{Leadership, LockManager, Term, WakeUps};
use distlock_testkit::{Fork, LONG, Mode, Proxy, RedisServer, data_at, fork_self, in_fork};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use crate::effort::{Dice, Effort};
use crate::report::Report;
use crate::stamp::{between, now};

const NAME: &str = "leaders";
/// Of a body that runs, and of a handle that is asked.
const KEYS: [&str; 2] = ["leader:run", "leader:asked"];
/// Where the leader of each finds that it is to resign.
const RESIGN: [&str; 2] = ["resign:run", "resign:asked"];
const TTL: Duration = Duration::from_millis(1000);
const PROCESSES: usize = 3;
/// A shorter term of a body counts as failed: the process pauses behind it.
const SHORT: Duration = Duration::from_secs(1);
/// How late the next one may be, while all that are in line live.
const LATE: Duration = Duration::from_millis(250);
const LATE_AFTER_RESIGNATION: Duration = Duration::from_millis(10);

/// A process, and its own way to the server.
struct Candidate {
    process: Fork,
    proxy: Proxy,
    number: usize,
}

impl Candidate {
    fn start(number: usize, server: &RedisServer) -> Self {
        let proxy = Proxy::to(server.addr());
        let env = [
            ("DISTLOCK_URL", proxy.url()),
            ("SOAK_DATA_URL", server.url_of_db(1)),
            ("SOAK_NUMBER", number.to_string()),
        ];
        let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
        Self { process: fork_self(NAME, &env), proxy, number }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Stop,
    CutOff,
    Resign,
}

/// One term, as the process itself has written it down.
struct Reign {
    number: usize,
    fence: u64,
    began: u64,
    /// When it last believed to lead.
    last: u64,
}

/// Runs it; an effort of times counts faults. The child processes come in here, too, and do not return.
pub async fn run(effort: Effort) -> Report {
    if in_fork() {
        return child().await;
    }
    let server = RedisServer::start();
    let mut data = data_at(&server.url_of_db(1)).await;
    let mut candidates: Vec<_> = (0..PROCESSES).map(|n| Candidate::start(n, &server)).collect();
    let (mut report, mut dice, begun) = (Report::default(), Dice(17), Instant::now());
    let (mut faults, mut number) = (Vec::new(), PROCESSES);
    while effort.goes_on(faults.len() as u64, begun) && report.violations().is_empty() {
        let Some(leader) = a_leader(&mut data, &candidates).await else {
            report.violated_if(true, "there is no leader");
            break;
        };
        if !all_is_well(&mut data, &candidates).await {
            report.violated_if(true, "a candidate does not campaign, or a key has no leader");
            break;
        }
        tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
        let fault =
            [Fault::Kill, Fault::Stop, Fault::CutOff, Fault::Resign][dice.below(4) as usize];
        let led = terms(&mut data, fault).await;
        let at = now();
        let candidate = &mut candidates[leader];
        match fault {
            Fault::Kill => {
                let next = Candidate::start(number, &server);
                number += 1;
                std::mem::replace(candidate, next).process.kill9();
            }
            Fault::Stop => candidate.process.stop(),
            Fault::CutOff => candidate.proxy.set(Mode::DropUp),
            Fault::Resign => {
                data.mset::<_, _, ()>(&RESIGN.map(|key| (key, 1))).await.expect("MSET")
            }
        }
        faults.push((fault, at));
        let start = Instant::now();
        let is_followed = |terms: Vec<usize>| terms.iter().zip(&led).all(|(now, then)| now > then);
        while !is_followed(terms(&mut data, fault).await) && start.elapsed() < LONG {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It comes back after another has begun to lead.
        match fault {
            Fault::Stop => candidates[leader].process.cont(),
            Fault::CutOff => candidates[leader].proxy.set(Mode::Pass),
            Fault::Kill | Fault::Resign => {}
        }
    }
    // What the last ones believed is written down.
    tokio::time::sleep(2 * TTL).await;
    drop(candidates);
    report.figure("killed, stopped, cut off or resigned", faults.len());
    for key in KEYS {
        let reigns = reigns(&mut data, key).await;
        judge(key, &reigns, &mut report);
        successions(key, &reigns, &faults, &mut report);
    }
    report
}

/// Of how many terms it is known that they began, under the keys whose leader a fault concerns.
async fn terms(data: &mut MultiplexedConnection, fault: Fault) -> Vec<usize> {
    let keys = if fault == Fault::Resign { &KEYS[..] } else { &KEYS[..1] };
    let mut terms = Vec::new();
    for key in keys {
        terms.push(data.llen(key).await.expect("LLEN"));
    }
    terms
}

/// Waits until each of the candidates leads or stands in line, under both keys, and reaches the server; and until
/// one of them leads under each: a killed leader mostly led under the other key as well, and its lease there
/// may end later. A resignation before that would be followed when that lease is over.
async fn all_is_well(data: &mut MultiplexedConnection, candidates: &[Candidate]) -> bool {
    let start = Instant::now();
    while start.elapsed() < LONG {
        let well: Vec<_> = candidates.iter().map(|one| format!("well:{}", one.number)).collect();
        let led: Vec<Option<usize>> = data.mget(&well).await.expect("MGET");
        if led.into_iter().sum::<Option<usize>>() == Some(KEYS.len()) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

/// Which of the candidates leads, once one does.
async fn a_leader(data: &mut MultiplexedConnection, candidates: &[Candidate]) -> Option<usize> {
    let start = Instant::now();
    while start.elapsed() < LONG {
        let last: Option<String> = data.lindex(KEYS[0], -1).await.expect("LINDEX");
        let number = last.as_deref().and_then(|entry| entry.split(' ').next()?.parse().ok());
        let place = candidates.iter().position(|candidate| Some(candidate.number) == number);
        if place.is_some() {
            return place;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

async fn reigns(data: &mut MultiplexedConnection, key: &str) -> Vec<Reign> {
    let entries: Vec<String> = data.lrange(key, 0, -1).await.expect("LRANGE");
    let mut reigns = Vec::new();
    for entry in entries {
        let words: Vec<u64> = entry.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [number, fence, began] = words[..] else { continue };
        let last: Option<u64> = data.get(format!("{key}:{fence}")).await.expect("GET");
        reigns.push(Reign { number: number as usize, fence, began, last: last.unwrap_or(began) });
    }
    reigns.sort_by_key(|reign| reign.fence);
    reigns
}

fn judge(key: &str, reigns: &[Reign], report: &mut Report) {
    report.figure(format!("{key}: terms"), reigns.len());
    for two in reigns.windows(2) {
        let [one, next] = two else { continue };
        report.violated_if(one.fence == next.fence, format!("{key}: a token was given twice"));
        report.violated_if(
            next.began <= one.last,
            format!(
                "{key}: {} and {} led at once, for {:.1?}",
                one.number,
                next.number,
                between(next.began, one.last)
            ),
        );
    }
}

/// How long there was no leader after each fault.
fn successions(key: &str, reigns: &[Reign], faults: &[(Fault, u64)], report: &mut Report) {
    let (mut after_death, mut after_resignation) = (Vec::new(), Vec::new());
    for (fault, at) in faults {
        let Some(next) = reigns.iter().position(|reign| reign.began > *at).filter(|n| *n > 0)
        else {
            continue;
        };
        let last = reigns[next - 1].last;
        match fault {
            Fault::Resign => after_resignation.push(between(last, reigns[next].began)),
            // Of those that led under this key: the other one may have another leader.
            _ if key == KEYS[0] => after_death.push(between(*at, reigns[next].began)),
            _ => {}
        }
    }
    if key == KEYS[0] {
        let name = format!("{key}: next one after death, standstill or partition");
        report.spread(&name, after_death, TTL + LATE);
    }
    let name = format!("{key}: next one after a resignation");
    report.spread(&name, after_resignation, LATE_AFTER_RESIGNATION);
}

/// One of the processes. Ends when it is killed.
async fn child() -> Report {
    let number = std::env::var("SOAK_NUMBER").expect("its number");
    let manager = LockManager::from_env().expect("a manager");
    let data = data_at(&std::env::var("SOAK_DATA_URL").expect("its data")).await;
    tokio::spawn(asked(manager.clone(), data.clone(), number.clone()));
    tokio::spawn(is_well(manager.clone(), data.clone(), number.clone()));
    let body = |term: Term| reign(term, data.clone(), number.clone());
    manager.leader(KEYS[0]).ttl(TTL).run(body).await.expect("it campaigns");
    Report::default()
}

/// Says for as long as it is so that it reaches the server, and leads or stands in line under both keys; and under how
/// many it leads.
async fn is_well(manager: LockManager, mut data: MultiplexedConnection, number: String) {
    loop {
        let (reaches, status) = (manager.ping().await.is_ok(), manager.status());
        let campaigns = status.held + status.waiting == KEYS.len();
        if reaches && campaigns && status.wake_ups == WakeUps::Notified {
            let well = format!("well:{number}");
            data.pset_ex::<_, _, ()>(well, status.held, 200).await.expect("PSETEX");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes down that it leads for as long as it does, or is asked to resign.
async fn reign(term: Term, mut data: MultiplexedConnection, number: String) {
    let (key, fence) = (KEYS[0], term.fencing_token());
    let began = now();
    data.rpush::<_, _, ()>(key, format!("{number} {fence} {began}")).await.expect("RPUSH");
    let mut resigns = false;
    loop {
        let last = now();
        // Asked behind the clock: a process may be stopped between any two instructions.
        if term.is_current() {
            data.set::<_, _, ()>(format!("{key}:{fence}"), last).await.expect("SET");
        }
        if resigns && term.age() > SHORT {
            return;
        }
        resigns |= data.del::<_, usize>(RESIGN[0]).await.expect("DEL") > 0;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Writes down what a handle says.
async fn asked(manager: LockManager, mut data: MultiplexedConnection, number: String) {
    let leader = manager.leader(KEYS[1]).ttl(TTL).start();
    let (mut written, mut resigns) = (0, false);
    loop {
        if std::mem::take(&mut resigns) {
            leader.resign().await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        // Before it is asked: a process may be stopped behind the answer.
        let at = now();
        if !leader.is_leader() {
            continue;
        }
        let Leadership::Leading(term) = leader.current() else { continue };
        let (key, fence) = (KEYS[1], term.fencing_token());
        if fence != written {
            written = fence;
            data.rpush::<_, _, ()>(key, format!("{number} {fence} {at}")).await.expect("RPUSH");
        }
        data.set::<_, _, ()>(format!("{key}:{fence}"), at).await.expect("SET");
        resigns = data.del::<_, usize>(RESIGN[1]).await.expect("DEL") > 0;
    }
}
