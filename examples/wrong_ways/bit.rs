//! A bit that is read and then set.

use crate::stage::{Error, Redis, Stage, Story};

pub(crate) const TITLE: &str = "GETBIT, then SETBIT";
pub(crate) const FLAW: &str = "\
Reading and setting are two commands. Between them, another process reads the same 0.";

/// As taught. `pause`: the scheduler takes the processor away here.
async fn lock(
    redis: &Redis,
    key: &str,
    pause: impl AsyncFnOnce() -> Result<(), Error>,
) -> Result<bool, Error> {
    let taken: bool = redis.ask(&["GETBIT", key, "0"]).await?;
    pause().await?;
    if !taken {
        redis.ask::<()>(&["SETBIT", key, "0", "1"]).await?;
    }
    Ok(!taken)
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b, key) = (stage.redis().await?, stage.redis().await?, stage.key("bit"));
    let story = Story::default();
    let meanwhile = async || {
        story.tell("A", "GETBIT says 0, and A is paused");
        if lock(&b, &key, async || Ok(())).await? {
            story.enters("B", "GETBIT says 0; SETBIT. B has the lock");
        }
        Ok(())
    };
    if lock(&a, &key, meanwhile).await? {
        story.enters("A", "goes on: SETBIT. A has the lock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (a, b, key) = (stage.locks().await?, stage.locks().await?, stage.key("bit"));
    let story = Story::default();
    story.tell("A,B", "ask at the same moment");
    let (a, b) = tokio::join!(a.lock(&*key).try_acquire(), b.lock(&*key).try_acquire());
    let granted = [a?, b?].into_iter().flatten().collect::<Vec<_>>();
    for (guard, name) in granted.iter().zip(["One", "Both"]) {
        assert!(guard.is_held());
        story.enters(name, "has the lock");
    }
    if granted.len() == 1 {
        story.tell("The", "other is told that the lock is held elsewhere");
    }
    Ok(story)
}
