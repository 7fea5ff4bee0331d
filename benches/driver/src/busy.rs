//! Tasks that take a lock again and again.

use std::time::{Duration, Instant};

use distlock::{LockError, LockManager};

use crate::Scenario;
use crate::subject::{Subject, Taking, request};

/// For so long each reader of `starve` reads; the others of its process begin meanwhile.
const READ: Duration = Duration::from_millis(5);
/// The writer of `starve` has so long to itself between two turns.
const PAUSE: Duration = Duration::from_millis(20);

/// Each task locks and unlocks as fast as it can.
pub(crate) async fn busy(
    scenario: &Scenario,
    subject: impl Fn(usize) -> Subject,
) -> Result<(), LockError> {
    let stop = Instant::now() + scenario.time;
    let tasks: Vec<_> = (0..scenario.tasks)
        .map(|task| {
            let (subject, first) = (subject(task), (task + scenario.process) as u64);
            tokio::spawn(async move {
                let (mut locks, mut us, mut writer_us) = (0_u64, Vec::new(), Vec::new());
                while Instant::now() < stop {
                    let turn = subject.turn(first + locks).await?;
                    us.push(turn.waited.as_micros());
                    if turn.writes {
                        writer_us.push(turn.waited.as_micros());
                    }
                    locks += 1;
                }
                Ok::<_, LockError>((locks, us, writer_us))
            })
        })
        .collect();
    let (mut per_task, mut us, mut writer_us) = (Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        let (locks, times, writes) = task.await.expect("a task does not panic")?;
        per_task.push(locks);
        us.extend(times.into_iter().step_by(7));
        writer_us.extend(writes);
    }
    let locks: u64 = per_task.iter().sum();
    println!(
        r#"{{"locks": {locks}, "per_task": {per_task:?}, "us": {us:?}, "writer_us": {writer_us:?}}}"#
    );
    Ok(())
}

/// Readers that overlap without a pause, and in the first process a writer besides.
pub(crate) async fn starve(manager: &LockManager, scenario: &Scenario) -> Result<(), LockError> {
    let stop = Instant::now() + scenario.time;
    let tasks = u32::try_from(scenario.tasks).expect("few tasks");
    let readers: Vec<_> = (0..tasks)
        .map(|task| {
            let manager = manager.clone();
            tokio::spawn(async move {
                // One after the other, so that there is always a reader.
                tokio::time::sleep(READ * task / tasks).await;
                let mut locks = 0_u64;
                while Instant::now() < stop {
                    let guard = request(&manager, "hot", Taking::Read).acquire().await?;
                    tokio::time::sleep(READ).await;
                    guard.release().await?;
                    locks += 1;
                }
                Ok::<_, LockError>(locks)
            })
        })
        .collect();
    let mut writer_us = Vec::new();
    while scenario.process == 0 && Instant::now() < stop {
        tokio::time::sleep(PAUSE).await;
        let start = Instant::now();
        let guard = request(manager, "hot", Taking::Write).acquire().await?;
        writer_us.push(start.elapsed().as_micros());
        guard.release().await?;
    }
    let mut per_task = Vec::new();
    for reader in readers {
        per_task.push(reader.await.expect("a reader does not panic")?);
    }
    let locks = per_task.iter().sum::<u64>() + writer_us.len() as u64;
    println!(r#"{{"locks": {locks}, "per_task": {per_task:?}, "writer_us": {writer_us:?}}}"#);
    Ok(())
}
