//! Waiting in a loop.

use std::sync::Mutex;

use distlock_testkit::{in_line, wait_for};

use crate::stage::{Error, LONG, Redis, Stage, Story};

pub(crate) const TITLE: &str = "Waiting in a loop with a sleep";
pub(crate) const FLAW: &str = "\
Every waiter asks again and again, and the first to ask after the release has the
lock: mostly not the one that waited longest.";

const WAITERS: usize = 50;
const ROUNDS: usize = 10;

/// How many commands the server has carried out so far.
async fn commands(redis: &Redis) -> Result<usize, Error> {
    let info: String = redis.ask(&["INFO", "stats"]).await?;
    let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    Ok(count.ok_or("the server does not count")?.trim().parse()?)
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (redis, key) = (stage.redis().await?, stage.key("spin"));
    let story = Story::default();
    if redis.set_nx(&key, "A", LONG).await? {
        story.enters("A", "SET NX PX, has the lock");
    }
    let before = commands(&redis).await?;
    let mut refused = 0;
    for _round in 0..ROUNDS {
        for waiter in 0..WAITERS {
            refused += usize::from(!redis.set_nx(&key, &waiter.to_string(), LONG).await?);
        }
    }
    let sent = commands(&redis).await? - before - 1;
    story.tell("50", &format!("wait: each has asked {ROUNDS} times, {sent} commands for nothing"));
    redis.ask::<()>(&["DEL", &key]).await?;
    story.leaves("A");
    story.tell("A", "frees the lock while they sleep");
    if redis.set_nx(&key, "N", LONG).await? {
        story.enters("N", "has just come: SET NX PX, has the lock");
        if refused == ROUNDS * WAITERS {
            story.fails("the last to come is served first, the 50 that waited are not");
        }
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (redis, key) = (stage.redis().await?, stage.key("spin"));
    let (a, b, newcomer) = (stage.locks().await?, stage.locks().await?, stage.locks().await?);
    let story = Story::default();
    let guard = a.lock(&*key).acquire().await?;
    story.enters("A", "has the lock");
    let before = commands(&redis).await?;
    let (served, first_may_end) = (Mutex::new(Vec::new()), tokio::sync::Notify::new());
    let mut waiting = Vec::new();
    for waiter in 0..WAITERS {
        let (served, first_may_end) = (&served, &first_may_end);
        let body = async move {
            if waiter == 0 {
                first_may_end.notified().await;
            }
            served.lock().map(|mut served| served.push(waiter)).is_ok()
        };
        waiting.push(in_line(b.lock(&*key).wait(LONG).run(body)).await);
    }
    let queue = format!("distlock:queue:{{{key}}}");
    let mut looks = 0;
    let stands = async || {
        looks += 1;
        matches!(redis.ask(&["ZCARD", &queue]).await, Ok(1))
    };
    wait_for("their process stands in the queue", stands).await;
    let sent = commands(&redis).await? - before - 1 - looks;
    story.tell(
        "50",
        &format!(
            "wait: {} commands than waiters were sent",
            if sent < WAITERS { "fewer" } else { "more" },
        ),
    );
    guard.release().await?;
    story.leaves("A");
    story.tell("A", "frees the lock");
    match newcomer.lock(&*key).try_acquire().await? {
        Some(_) => story.fails("the last to come is served first"),
        None => story.tell("N", "has just come, and is told that the lock is held elsewhere"),
    }
    first_may_end.notify_one();
    for waiter in waiting {
        waiter.await?;
    }
    let served = served.into_inner()?;
    if served.is_sorted() && served.len() == WAITERS {
        story.tell("50", "have the lock one after the other, in the order in which they came");
    } else {
        story.fails("the order in which they came was not kept");
    }
    Ok(story)
}
