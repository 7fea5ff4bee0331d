//! One holder and many waiters: how soon they are served once it releases.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use distlock::{LockError, LockManager};

use crate::Scenario;
use crate::subject::{Taking, WAIT, request};

/// Milliseconds on the clock that all processes of the machine share.
pub(crate) fn epoch_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_secs_f64() * 1e3
}

pub(crate) async fn idle(manager: &LockManager, scenario: &Scenario) -> Result<(), LockError> {
    let held = manager.lock("hot").acquire().await?;
    let waiters: Vec<_> = (1..scenario.tasks)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let guard = manager.lock("hot").wait(WAIT).acquire().await?;
                let at = Instant::now();
                guard.release().await?;
                Ok::<_, LockError>(at)
            })
        })
        .collect();
    tokio::time::sleep(scenario.time).await;
    let released = Instant::now();
    held.release().await?;
    let mut times = Vec::new();
    for waiter in waiters {
        let at = waiter.await.expect("a waiter does not panic")?;
        times.push(at.duration_since(released).as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (first, drain) = (times[0], times[times.len() - 1]);
    let locks = scenario.tasks;
    println!(r#"{{"locks": {locks}, "per_task": [1], "first_ms": {first}, "drain_ms": {drain}}}"#);
    Ok(())
}

/// Readers in all processes behind a writer in the first one.
pub(crate) async fn run(manager: &LockManager, scenario: &Scenario) -> Result<(), LockError> {
    let pause = scenario.time / 2;
    let writer = match scenario.process {
        0 => Some(request(manager, "hot", Taking::Write).acquire().await?),
        _ => None,
    };
    // The others come once it has the lock.
    tokio::time::sleep(pause).await;
    let readers: Vec<_> = (0..scenario.tasks)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let guard = request(&manager, "hot", Taking::Read).acquire().await?;
                let at = epoch_ms();
                guard.release().await?;
                Ok::<_, LockError>(at)
            })
        })
        .collect();
    let mut freed = None;
    if let Some(writer) = writer {
        tokio::time::sleep(pause).await;
        freed = Some(epoch_ms());
        writer.release().await?;
    }
    let mut at = Vec::new();
    for reader in readers {
        at.push(reader.await.expect("a reader does not panic")?);
    }
    let freed = freed.map_or("null".to_owned(), |at| at.to_string());
    let locks = at.len();
    println!(r#"{{"locks": {locks}, "per_task": [1], "freed_at": {freed}, "served_at": {at:?}}}"#);
    Ok(())
}
