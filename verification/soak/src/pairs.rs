//! Calls for two of four locks by so many tasks that most waits run out: as long as the store is well
//! each of them has its locks, or learns that others held them all the time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};
use distlock_testkit::RedisServer;
use tokio::task::JoinSet;

use crate::effort::{Dice, Effort};
use crate::report::Report;

const KEYS: u64 = 4;
/// How long a body takes.
const WORK: Duration = Duration::from_millis(50);
/// What a busy machine may add to the end of a wait.
const ROOM: Duration = Duration::from_secs(5);
/// Around the time that a command may take, which is also the least that a call lasts.
const WAITS: [u64; 6] = [500, 900, 1000, 1000, 1100, 2000];

/// One setting after the other, each for its part of the effort; an effort of times counts the calls
/// of each task.
pub async fn run(tasks: usize, effort: Effort) -> Report {
    let server = RedisServer::start();
    let mut report = Report::default();
    let settings = [("memory, 1", 0), ("redis, 1", 1), ("redis, 2", 2)];
    let parts = u32::try_from(settings.len()).expect("a few");
    let effort = match effort {
        Effort::Times(times) => Effort::Times(times),
        Effort::Time(time) => Effort::Time(time / parts),
    };
    for (name, processes) in settings {
        let mut managers = Vec::new();
        for _ in 0..processes {
            managers.push(connect(&server).await);
        }
        if managers.is_empty() {
            managers.push(LockManager::in_memory());
        }
        let name = format!("{name} process(es) of {tasks} tasks");
        let outcomes = crowd(&managers, tasks, effort).await;
        let count = |what: &str| outcomes.get(what).copied().unwrap_or_default();
        report.figure(&name, format!("{} ran, {} busy", count(RAN), count(BUSY)));
        for (what, times) in &outcomes {
            let other = ![RAN, BUSY].contains(&what.as_str());
            report.violated_if(other, format!("{name}: {times} times {what}"));
        }
        report.violated_if(count(RAN) == 0, format!("{name}: none was granted"));
        for manager in managers {
            manager.close(ROOM).await;
        }
    }
    let left = server.lock_keys();
    report.violated_if(!left.is_empty(), format!("left behind: {left:?}"));
    report
}

/// With the default time for a command, which is what the waits are around.
async fn connect(server: &RedisServer) -> LockManager {
    let builder = LockManager::builder().url(server.url()).connect_timeout(4 * ROOM);
    builder.connect().await.expect("connect")
}

const RAN: &str = "ran";
const BUSY: &str = "busy";

/// How often calls came to what.
async fn crowd(managers: &[LockManager], tasks: usize, effort: Effort) -> BTreeMap<String, u64> {
    let outcomes = Arc::new(Mutex::new(BTreeMap::new()));
    let mut crowd = JoinSet::new();
    let begun = Instant::now();
    for (n, manager) in (0..tasks as u64).flat_map(|n| managers.iter().map(move |m| (n, m))) {
        let (manager, outcomes) = (manager.clone(), outcomes.clone());
        crowd.spawn(async move {
            let (mut dice, mut done) = (Dice(n), 0);
            while effort.goes_on(done, begun) {
                let first = dice.below(KEYS);
                let second = (first + 1 + dice.below(KEYS - 1)) % KEYS;
                // All in step: that is when most waits run out in the same moment.
                let wait = Duration::from_millis(WAITS[done as usize % WAITS.len()]);
                let keys = [first, second].map(|key| format!("account:{key}"));
                done += 1;
                let start = Instant::now();
                let request = manager.lock_all(keys).wait(wait);
                let outcome = match request.run(tokio::time::sleep(WORK)).await {
                    Ok(()) => RAN.to_owned(),
                    Err(LockError::Busy { .. }) => BUSY.to_owned(),
                    Err(error) => format!("{error} (wait {wait:?})"),
                };
                if start.elapsed() > wait + ROOM {
                    *outcomes.lock().expect("no panic").entry("late".to_owned()).or_default() += 1;
                }
                *outcomes.lock().expect("no panic").entry(outcome).or_default() += 1;
            }
        });
    }
    while let Some(task) = crowd.join_next().await {
        task.expect("no panic");
    }
    let outcomes = outcomes.lock().expect("no panic");
    outcomes.clone()
}
