//! One at a time, over processes and tasks: shown by updates that are not lost under the lock, and
//! are lost as soon as it is taken off.

use std::time::Duration;

use distlock::redis_lock;
use distlock_testkit::{RedisServer, data_at, fork_self, in_fork, this_test, wait_for, wait_until};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

type Error = Box<dyn std::error::Error + Send + Sync>;

const PROCESSES: usize = 8;
const TASKS: usize = 8;
const ROUNDS: usize = 5;
const UPDATES: usize = PROCESSES * TASKS * ROUNDS;

/// Read, sleep, write: what others write in between is lost.
async fn add_one(data: &mut MultiplexedConnection) -> Result<(), Error> {
    let value: usize = data.get("value").await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    data.set::<_, _, ()>("value", value + 1).await?;
    Ok(())
}

#[redis_lock(key = "value", ttl = "10s", wait = "2m")]
async fn add_one_locked(data: &mut MultiplexedConnection) -> Result<(), Error> {
    add_one(data).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost_under_the_lock() {
    if in_fork() {
        return child(true).await.expect("a child's work");
    }
    assert_eq!(parent(this_test!()), UPDATES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_lost_without_the_lock() {
    if in_fork() {
        return child(false).await.expect("a child's work");
    }
    let kept = parent(this_test!());
    assert!(kept < UPDATES, "nothing was lost without a lock: the test above shows nothing");
}

/// The value when all children are done.
fn parent(test: &str) -> usize {
    let server = RedisServer::start();
    // Not database 0, which shows nothing but locks.
    let data = server.url_of_db(1);
    let client = redis::Client::open(data.as_str()).expect("a URL");
    let mut eye = client.get_connection().expect("connect");
    redis::cmd("SET").arg("value").arg(0).query::<()>(&mut eye).expect("SET");

    let env = [("DISTLOCK_URL", server.url()), ("DATA_URL", data)];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let children: Vec<_> = (0..PROCESSES).map(|_| fork_self(test, &env)).collect();
    for child in children {
        child.join();
    }
    wait_until("all locks are free", || server.lock_keys().is_empty());
    redis::cmd("GET").arg("value").query(&mut eye).expect("GET")
}

/// One of the processes: its manager is the process-wide one, from `DISTLOCK_URL`.
async fn child(locked: bool) -> Result<(), Error> {
    let data = data_at(&std::env::var("DATA_URL")?).await;

    // Together, or the first would be done before the last has started.
    data.clone().incr::<_, _, ()>("ready", 1).await?;
    wait_for("all processes are ready", async || {
        data.clone().get("ready").await.is_ok_and(|ready: usize| ready == PROCESSES)
    })
    .await;

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mut data = data.clone();
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                if locked { add_one_locked(&mut data).await? } else { add_one(&mut data).await? }
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
